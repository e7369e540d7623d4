#!lua flags=allow-oom
-- Marks due holds as expiring, earliest deadline first; their units stay held. Allowed when memory is full: it is the
-- first step towards room.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: 1 most holds to mark, 2 (always the last) the server's identity, or '' where it is not checked
-- Output: {'expired', claim, claim, ...}
--   | {'suspect', why}: the sale's keys do not fit together; nothing was written

local values = redis.call('HMGET', KEYS[1], 'clock', 'due')
local clock, due = tonumber(values[1] or ''), tonumber(values[2] or '')
if not (clock and due) then
    return {'suspect', 'the sale has no stock here'}
end
if redis.call('ZCARD', KEYS[3]) ~= due then
    return {'suspect', 'deadlines are missing'}
end
local time = redis.call('TIME')
local now = string.format('%.0f', math.max(tonumber(time[1]) * 1000000 + tonumber(time[2]), clock))
local claims = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[1])
if #claims == 0 then
    return {'expired'}
end
local records = redis.call('HMGET', KEYS[2], unpack(claims))
local holds = {}
for index, claim in ipairs(claims) do
    local account, item, units, claimed_at, deadline, memo =
        string.match(records[index] or '', '^held|([^|]+)|([^|]+)|([%d,]+)|(%d+)|(%d+)|(.*)$')
    if not account then
        return {'suspect', 'the due hold ' .. claim .. ' cannot be read'}
    end
    holds[index] = {'kind', 'expiring', 'claim', claim, 'account', account, 'item', item, 'units', units,
        'claimed_at', claimed_at, 'deadline', deadline, 'memo', memo}
end

local answer = {'expired'}
for index, claim in ipairs(claims) do
    -- The event goes first: it is the one write that can still be refused, when the stream's ids are used up.
    redis.call('XADD', KEYS[5], '*', unpack(holds[index]))
    redis.call('HSET', KEYS[2], claim, 'expiring' .. string.sub(records[index], 5))
    redis.call('ZREM', KEYS[3], claim)
    redis.call('HSET', KEYS[1], 'clock', now, 'due', due - index)
    answer[index + 1] = claim
end
if identity ~= '' and not left_by then
    redis.call('HSET', KEYS[1], 'identity', identity)
    redis.call('HSETNX', KEYS[1], 'generation', '1')
end
return answer
