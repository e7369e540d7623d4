#!lua flags=allow-oom
-- Sells a claim's units to it although it may have been released: its own where all are free, else as many others,
-- returned ones first, lowest first. Allowed when memory is full: whoever paid must not go without for want of a few bytes.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned (as in claim.lua)
-- ARGV: 1 claim, 2 per_account_limit, 3 total_limit or '', 4 (always the last) the server's identity, or '' where it is
--   not checked
-- Output: {'reclaimed', units}, now or already | {'refused', 'sold_out'} | {'refused', 'limit_reached', limit, taken}
--   | {'no_such_claim'}
--   | {'suspect', why}: the sale's keys do not fit together; nothing was written
-- abandoned holds "r:<claim>" -> "sold_out" or "limit_reached <limit> <taken>" for each claim that was refused: it stays refused.

local names = {'claims', 'due', 'accounts', 'total', 'held'}
local sale = {}
for index, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    sale[names[index]] = tonumber(value or '')
    if not sale[names[index]] then
        return {'suspect', 'the sale has no stock here'}
    end
end
if redis.call('HLEN', KEYS[2]) ~= sale.claims or redis.call('ZCARD', KEYS[3]) ~= sale.due
    or redis.call('HLEN', KEYS[4]) ~= sale.accounts or (sale.claims > 0 and found[5] == 'none') then
    return {'suspect', 'holds, deadlines, accounts or events are missing'}
end
local record = redis.call('HGET', KEYS[2], ARGV[1])
if not record then
    return {'no_such_claim'}
end
local state, account, item, units, claimed_at, deadline, memo =
    string.match(record, '^(%l+)|([^|]+)|([^|]+)|([%d,]+)|(%d+)|(%d+)|(.*)$')
if state == 'committed' then
    -- Writes what is there, so that WAIT on this connection waits for the sale and not for nothing.
    redis.call('HSET', KEYS[2], ARGV[1], record)
    return {'reclaimed', units}
end
if state ~= 'held' and state ~= 'expiring' and state ~= 'released' then
    return {'suspect', 'the hold ' .. ARGV[1] .. ' cannot be read'}
end

local function refuse(answer)
    redis.call('HSET', KEYS[7], 'r:' .. ARGV[1], table.concat(answer, ' '))
    return {'refused', unpack(answer)}
end
local is_live = state ~= 'released'
local refused = not is_live and redis.call('HGET', KEYS[7], 'r:' .. ARGV[1])
if refused then
    local limit, taken = string.match(refused, '^limit_reached (%d+) (%d+)$')
    return refuse(limit and {'limit_reached', limit, taken} or {'sold_out'})
end

local words = {'place', 'stock', 'available', 'held', 'sold', 'next', 'last'}
local fields = {}
for index, word in ipairs(words) do
    fields[index] = word .. ':' .. item
end
local values = redis.call('HMGET', KEYS[1], unpack(fields))
if not values[1] and not is_live then
    return refuse({'sold_out'})
end
local shelf = {}
for index, word in ipairs(words) do
    shelf[word] = tonumber(values[index] or '')
    if not shelf[word] then
        return {'suspect', KEYS[1] .. ' has no ' .. fields[index]}
    end
end
local first = shelf.place * 4294967296
local last = first + 4294967295
local _, commas = string.gsub(units, ',', '')
local count = commas + 1
local taken, live = string.match(redis.call('HGET', KEYS[4], account) or '', '^(%d+) (%d+)$')
if not taken or shelf.available + shelf.held + shelf.sold ~= shelf.stock
    or redis.call('ZCOUNT', KEYS[6], first, last) + shelf.last + 1 - shelf.next ~= shelf.available
    or (is_live and (tonumber(live) < 1 or shelf.held < count or sale.held < count)) then
    return {'suspect', 'the counts of ' .. item .. ' do not add up'}
end

local returned, next_unit = {}, shelf.next
if not is_live then
    local total_limit = tonumber(ARGV[3])
    if shelf.available < count or (total_limit and total_limit - sale.total < count) then
        return refuse({'sold_out'})
    end
    if taken + count > tonumber(ARGV[2]) then
        return refuse({'limit_reached', ARGV[2], taken})
    end
    for unit in string.gmatch(units, '%d+') do
        if redis.call('ZSCORE', KEYS[6], item .. ':' .. unit) then
            returned[#returned + 1] = item .. ':' .. unit
        end
    end
    if #returned < count then
        returned = redis.call('ZRANGEBYSCORE', KEYS[6], first, last, 'LIMIT', 0, count)
        local others = {}
        for index, member in ipairs(returned) do
            others[index] = string.match(member, ':(%d+)$')
            if not others[index] then
                return {'suspect', 'a unit of ' .. item .. ' that came back has no number'}
            end
        end
        while #others < count do
            others[#others + 1] = string.format('%d', next_unit)
            next_unit = next_unit + 1
        end
        units = table.concat(others, ',')
    end
end

-- The event goes first: it is the one write that can still be refused, when the stream's ids are used up.
redis.call('XADD', KEYS[5], '*', 'kind', 'committed', 'claim', ARGV[1], 'account', account, 'item', item,
    'units', units, 'claimed_at', claimed_at, 'deadline', deadline, 'memo', memo)
if is_live then
    redis.call('HSET', KEYS[1], 'due', sale.due - (state == 'held' and 1 or 0), 'held', sale.held - count,
        'held:' .. item, shelf.held - count, 'sold:' .. item, shelf.sold + count)
    redis.call('HSET', KEYS[4], account, string.format('%s %d', taken, live - 1))
    redis.call('ZREM', KEYS[3], ARGV[1])
    redis.call('HDEL', KEYS[7], ARGV[1])
else
    redis.call('HSET', KEYS[1], 'total', sale.total + count, 'available:' .. item, shelf.available - count,
        'sold:' .. item, shelf.sold + count, 'next:' .. item, next_unit)
    redis.call('HSET', KEYS[4], account, string.format('%d %s', taken + count, live))
    if #returned > 0 then
        redis.call('ZREM', KEYS[6], unpack(returned))
    end
end
redis.call('HSET', KEYS[2], ARGV[1], table.concat({'committed', account, item, units, claimed_at, deadline, memo}, '|'))
if identity ~= '' and not left_by then
    redis.call('HSET', KEYS[1], 'identity', identity)
    redis.call('HSETNX', KEYS[1], 'generation', '1')
end
return {'reclaimed', units}
