#!lua
-- Keeps a page of a rebuilt stock beside the old one until it is concluded.
-- KEYS: 1 stock, 2 staged holds, 3 staged due, 4 staged accounts, 5 staged returned
-- ARGV: 1 freeze, 2 seconds to keep it, 3 holds, 4 accounts, 5 units, then claim, record, deadline if held else '' for
--   each hold, account, what it has for each account, score, member for each unit, and the server's
--   identity, which does not matter here
-- Output: {'staged'} | {'stale'}: the sale is not frozen by this freeze

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' or redis.call('HGET', KEYS[1], 'frozen') ~= ARGV[1] then
    return {'stale'}
end
local at = 6
for _ = 1, tonumber(ARGV[3]) do
    redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
    if ARGV[at + 2] ~= '' then
        redis.call('ZADD', KEYS[3], ARGV[at + 2], ARGV[at])
    end
    at = at + 3
end
for _ = 1, tonumber(ARGV[4]) do
    redis.call('HSET', KEYS[4], ARGV[at], ARGV[at + 1])
    at = at + 2
end
for _ = 1, tonumber(ARGV[5]) do
    redis.call('ZADD', KEYS[5], ARGV[at], ARGV[at + 1])
    at = at + 2
end
for index = 2, 5 do
    redis.call('EXPIRE', KEYS[index], ARGV[2])
end
return {'staged'}
