#!lua flags=allow-oom
-- Gives a hold's units back. Allowed when memory is full: it is how room comes back.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: 1 claim, 2 (always the last) the server's identity, or '' where it is not checked
-- Output: {'released'} | {'committed'} | {'no_such_claim'}
--   | {'suspect', why}: the sale's keys do not fit together; nothing was written

local claims = tonumber(redis.call('HGET', KEYS[1], 'claims') or '')
if not claims then
    return {'suspect', 'the sale has no stock here'}
end
local record = redis.call('HGET', KEYS[2], ARGV[1])
if not record then
    if redis.call('HLEN', KEYS[2]) ~= claims then
        return {'suspect', 'holds are missing'}
    end
    return {'no_such_claim'}
end
local state, account, item, units, claimed_at, deadline, memo =
    string.match(record, '^(%l+)|([^|]+)|([^|]+)|([%d,]+)|(%d+)|(%d+)|(.*)$')
if state == 'committed' or state == 'released' then
    -- Writes what is there, so that WAIT on this connection waits for the ending and not for nothing.
    redis.call('HSET', KEYS[2], ARGV[1], record)
    return {state}
end
if state ~= 'held' and state ~= 'expiring' then
    return {'suspect', 'the hold ' .. ARGV[1] .. ' cannot be read'}
end

local names = {'due', 'total', 'held', 'place:' .. item, 'available:' .. item, 'held:' .. item}
local values = {}
for index, value in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    values[index] = tonumber(value or '')
    if not values[index] then
        return {'suspect', KEYS[1] .. ' has no ' .. names[index]}
    end
end
local due, total, held, place, available, item_held = unpack(values)
local returned = {}
for unit in string.gmatch(units, '%d+') do
    returned[#returned + 1] = string.format('%.0f', place * 4294967296 + tonumber(unit))
    returned[#returned + 1] = item .. ':' .. unit
end
-- A hold that ran out was abandoned by the admission it was claimed under; each admission counts for itself, and a
-- later one than the hold's makes it count no more.
local abandoned = nil
local admitted_at = redis.call('HGET', KEYS[7], ARGV[1])
if admitted_at and state == 'expiring' then
    local known_at, known = string.match(redis.call('HGET', KEYS[7], account) or '', '^(%-?%d+) (%d+)$')
    if not tonumber(admitted_at) or (not known_at and redis.call('HEXISTS', KEYS[7], account) == 1) then
        return {'suspect', 'what an account has abandoned cannot be read'}
    end
    if known_at == admitted_at then
        abandoned = string.format('%s %.0f', admitted_at, tonumber(known) + 1)
    elseif not known_at or tonumber(known_at) < tonumber(admitted_at) then
        abandoned = admitted_at .. ' 1'
    end
end
local count = #returned / 2
local taken, live = string.match(redis.call('HGET', KEYS[4], account) or '', '^(%d+) (%d+)$')
if not taken or tonumber(taken) < count or tonumber(live) < 1 or item_held < count or held < count or total < count then
    return {'suspect', 'the counts of ' .. item .. ' do not add up'}
end

-- The event goes first: it is the one write that can still be refused, when the stream's ids are used up.
redis.call('XADD', KEYS[5], '*', 'kind', 'released', 'claim', ARGV[1], 'account', account, 'item', item,
    'units', units, 'claimed_at', claimed_at, 'deadline', deadline, 'memo', memo, 'abandoned', abandoned or '')
if abandoned then
    redis.call('HSET', KEYS[7], account, abandoned)
end
redis.call('HDEL', KEYS[7], ARGV[1])
redis.call('HSET', KEYS[1], 'due', due - (state == 'held' and 1 or 0), 'total', total - count,
    'held', held - count, 'available:' .. item, available + count, 'held:' .. item, item_held - count)
redis.call('ZADD', KEYS[6], unpack(returned))
-- An account stays listed at 0: whoever has claimed finds the claim again, also when everything is sold out.
redis.call('HSET', KEYS[4], account, string.format('%d %d', taken - count, live - 1))
redis.call('HSET', KEYS[2], ARGV[1], 'released' .. string.sub(record, #state + 1))
if identity ~= '' and not left_by then
    redis.call('HSET', KEYS[1], 'identity', identity)
    redis.call('HSETNX', KEYS[1], 'generation', '1')
end
redis.call('ZREM', KEYS[3], ARGV[1])
return {'released'}
