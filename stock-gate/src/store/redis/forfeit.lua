#!lua
-- Purpose: forfeit: remember an admission as given up, so that no claim is made by its token any more.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned (as in claim.lua)
-- ARGV: 1 the token's id, 2 (always the last) the server's identity, or '' where it is not checked
-- Output: {'forfeited'}, now or before
--   | {'suspect', why}: the sale's keys do not fit together; nothing was written

if not tonumber(redis.call('HGET', KEYS[1], 'claims') or '') then
    return {'suspect', 'the sale has no stock here'}
end

-- By this field a claim finds out when the key of those given up is lost.
redis.call('HSET', KEYS[1], 'forfeited', '1')
redis.call('HSET', KEYS[7], 'f:' .. ARGV[1], '')
if identity ~= '' and not left_by then
    redis.call('HSET', KEYS[1], 'identity', identity)
    redis.call('HSETNX', KEYS[1], 'generation', '1')
end
return {'forfeited'}
