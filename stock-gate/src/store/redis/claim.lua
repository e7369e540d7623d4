#!lua
-- Takes units of one item, all or none, in one step: replay, limits, unit numbers, hold, event.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: 1 claim, 2 account, 3 item, 4 quantity, 5 hold_seconds, 6 per_account_limit, 7 total_limit or '',
--   8 '' or the refusal ('not_open', 'revoked'), 9 memo, 10 when the claim's admission was given (seconds),
--   11 holds an admission may let run out, or '', 12 the id of the claim's token,
--   13 holds an account may have live, or '', 14 (always the last) the server's identity, or '' where it is not checked
-- Output: {'held', record, '1' if the claim was made before else '0'} | {'sold_out', '1' if units may return else '0'}
--   | {'limit_reached', limit, taken} | {'live_holds_reached', limit, live} | {'line_up_again', holds abandoned} | {'forfeited'}: its admission was given up | {'not_open'} | {'revoked'} | {'no_such_item'}
--   | {'suspect', why}: the sale's keys do not fit together; nothing was written
-- abandoned holds account -> "<when its admission was given> <holds that ran out under it>", and while its hold is live
--   claim -> when its admission was given; "f:<token id>" -> '' for each admission that was given up.
-- accounts holds account -> "<units held or bought> <holds live>".
-- A record is state|account|item|units|claimed_at|deadline|memo, times in microseconds.

local claim, account, item, quantity = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local known = redis.call('HGET', KEYS[2], claim)
if known then
    -- Writes what is there, so that WAIT on this connection waits for the hold and not for nothing.
    redis.call('HSET', KEYS[2], claim, known)
    return {'held', known, '1'}
end
if found[1] == 'none' then
    return {'suspect', 'the sale has no stock here'}
end

local names = {'clock', 'claims', 'due', 'accounts', 'total', 'held'}
local sale = {}
for index, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    sale[names[index]] = tonumber(value or '')
    if not sale[names[index]] then
        return {'suspect', KEYS[1] .. ' has no ' .. names[index]}
    end
end
if redis.call('HLEN', KEYS[2]) ~= sale.claims or redis.call('ZCARD', KEYS[3]) ~= sale.due
    or redis.call('HLEN', KEYS[4]) ~= sale.accounts or (sale.claims > 0 and found[5] == 'none') then
    return {'suspect', 'holds, deadlines, accounts or events are missing'}
end
if found[7] == 'none' and redis.call('HEXISTS', KEYS[1], 'forfeited') == 1 then
    return {'suspect', 'the admissions that were given up are missing'}
end
if ARGV[8] ~= '' then
    return {ARGV[8]}
end
if redis.call('HEXISTS', KEYS[7], 'f:' .. ARGV[12]) == 1 then
    return {'forfeited'}
end

local words = {'place', 'stock', 'available', 'held', 'sold', 'next', 'last'}
local fields = {}
for index, word in ipairs(words) do
    fields[index] = word .. ':' .. item
end
local values = redis.call('HMGET', KEYS[1], unpack(fields))
if not values[1] then
    return {'no_such_item'}
end
local shelf = {}
for index, word in ipairs(words) do
    shelf[word] = tonumber(values[index] or '')
    if not shelf[word] then
        return {'suspect', KEYS[1] .. ' has no ' .. fields[index]}
    end
end
-- One sorted set holds what came back of every item: each item has its own range of scores.
local first = shelf.place * 4294967296
local last = first + 4294967295
local is_balanced = shelf.available >= 0 and shelf.held >= 0 and shelf.sold >= 0
    and shelf.available + shelf.held + shelf.sold == shelf.stock
    and redis.call('ZCOUNT', KEYS[6], first, last) + shelf.last + 1 - shelf.next == shelf.available
if not is_balanced then
    return {'suspect', 'the counts of ' .. item .. ' do not add up'}
end

if shelf.available < quantity then
    return {'sold_out', shelf.held > 0 and '1' or '0'}
end
local total_limit = tonumber(ARGV[7])
if total_limit and total_limit - sale.total < quantity then
    return {'sold_out', sale.held > 0 and '1' or '0'}
end
local abandoned_limit = tonumber(ARGV[11])
if abandoned_limit then
    local known = redis.call('HGET', KEYS[7], account)
    local admitted_at, abandoned = string.match(known or '0 0', '^(%-?%d+) (%d+)$')
    if not admitted_at then
        return {'suspect', 'what an account has abandoned cannot be read'}
    end
    if admitted_at == ARGV[10] and tonumber(abandoned) >= abandoned_limit then
        return {'line_up_again', abandoned}
    end
end
local listed = redis.call('HGET', KEYS[4], account)
local taken, live = string.match(listed or '0 0', '^(%d+) (%d+)$')
if not taken then
    return {'suspect', 'what an account has cannot be read'}
end
if taken + quantity > tonumber(ARGV[6]) then
    return {'limit_reached', ARGV[6], taken}
end
if tonumber(ARGV[13]) and tonumber(live) >= tonumber(ARGV[13]) then
    return {'live_holds_reached', ARGV[13], live}
end

local returned = redis.call('ZRANGEBYSCORE', KEYS[6], first, last, 'LIMIT', 0, quantity)
local units = {}
for index, member in ipairs(returned) do
    units[index] = string.match(member, ':(%d+)$')
    if not units[index] then
        return {'suspect', 'a unit of ' .. item .. ' that came back has no number'}
    end
end
local next_unit = shelf.next
while #units < quantity do
    units[#units + 1] = string.format('%d', next_unit)
    next_unit = next_unit + 1
end
local units_text = table.concat(units, ',')
local time = redis.call('TIME')
local now = math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), sale.clock)
local claimed_at = string.format('%.0f', now)
local deadline = string.format('%.0f', now + tonumber(ARGV[5]) * 1000000)
local record = table.concat({'held', account, item, units_text, claimed_at, deadline, ARGV[9]}, '|')

-- The event goes first: it is the one write that can still be refused, when the stream's ids are used up.
redis.call('XADD', KEYS[5], '*', 'kind', 'claimed', 'claim', claim, 'account', account, 'item', item,
    'units', units_text, 'claimed_at', claimed_at, 'deadline', deadline, 'memo', ARGV[9])
redis.call('HSET', KEYS[1], 'clock', claimed_at, 'claims', sale.claims + 1, 'due', sale.due + 1,
    'accounts', sale.accounts + (listed and 0 or 1), 'total', sale.total + quantity, 'held', sale.held + quantity,
    'available:' .. item, shelf.available - quantity, 'held:' .. item, shelf.held + quantity, 'next:' .. item, next_unit)
if identity ~= '' and not left_by then
    redis.call('HSET', KEYS[1], 'identity', identity)
    redis.call('HSETNX', KEYS[1], 'generation', '1')
end
if #returned > 0 then
    redis.call('ZREM', KEYS[6], unpack(returned))
end
redis.call('HSET', KEYS[4], account, string.format('%d %d', taken + quantity, live + 1))
redis.call('HSET', KEYS[2], claim, record)
if abandoned_limit then
    redis.call('HSET', KEYS[7], claim, ARGV[10])
end
redis.call('ZADD', KEYS[3], deadline, claim)
return {'held', record, '0'}
