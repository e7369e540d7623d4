#!lua flags=allow-oom
-- Marks a hold sold. Allowed when memory is full: a paid unit must never come back for want of a few bytes.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: 1 claim, 2 (always the last) the server's identity, or '' where it is not checked
-- Output: {'committed'} | {'released'} | {'no_such_claim'}
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
local _, commas = string.gsub(units, ',', '')
local count = commas + 1
local values = redis.call('HMGET', KEYS[1], 'due', 'held', 'held:' .. item, 'sold:' .. item)
local due, held, item_held, sold =
    tonumber(values[1] or ''), tonumber(values[2] or ''), tonumber(values[3] or ''), tonumber(values[4] or '')
if not (due and held and item_held and sold) or held < count or item_held < count then
    return {'suspect', 'the counts of ' .. item .. ' do not add up'}
end
local taken, live = string.match(redis.call('HGET', KEYS[4], account) or '', '^(%d+) (%d+)$')
if not taken or tonumber(live) < 1 then
    return {'suspect', 'what an account has cannot be read'}
end

-- The event goes first: it is the one write that can still be refused, when the stream's ids are used up.
redis.call('XADD', KEYS[5], '*', 'kind', 'committed', 'claim', ARGV[1], 'account', account, 'item', item,
    'units', units, 'claimed_at', claimed_at, 'deadline', deadline, 'memo', memo)
redis.call('HSET', KEYS[1], 'due', due - (state == 'held' and 1 or 0), 'held', held - count,
    'held:' .. item, item_held - count, 'sold:' .. item, sold + count)
redis.call('HSET', KEYS[2], ARGV[1], 'committed' .. string.sub(record, #state + 1))
redis.call('HSET', KEYS[4], account, string.format('%s %d', taken, live - 1))
if identity ~= '' and not left_by then
    redis.call('HSET', KEYS[1], 'identity', identity)
    redis.call('HSETNX', KEYS[1], 'generation', '1')
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[7], ARGV[1])
return {'committed'}
