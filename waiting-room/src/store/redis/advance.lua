#!lua
-- Purpose: advance: store a new admission record and lay numbering rows down, under the current fence and version only.
-- KEYS: 1 line (hash, as in lease.lua and fold.lua); 2 rows (list)
-- ARGV: 1 fence; 2 expected version; 3 new version; 4 new record; 5 position of the first row; then the rows
-- Output: "advanced"; otherwise nothing changed: "fenced" or "stale"
local from = tonumber(ARGV[5])
if #ARGV < 5 or not tonumber(ARGV[1]) or not tonumber(ARGV[2]) or not tonumber(ARGV[3]) or not from then
  return redis.error_reply('LINE advance was called with wrong arguments')
end
local held = redis.call('HMGET', KEYS[1], 'fence', 'version', 'rows_first')
if (held[1] or '0') ~= ARGV[1] then
  return 'fenced'
end
local keep, have = from - tonumber(held[3] or '0'), redis.call('LLEN', KEYS[2])
if (held[2] or '0') ~= ARGV[2] or keep < 0 or have < keep then
  return 'stale'
end
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'record', ARGV[4])
if keep == 0 then
  redis.call('DEL', KEYS[2])
elseif have > keep then
  redis.call('LTRIM', KEYS[2], 0, keep - 1)
end
for i = 6, #ARGV do
  redis.call('RPUSH', KEYS[2], ARGV[i])
end
return 'advanced'
