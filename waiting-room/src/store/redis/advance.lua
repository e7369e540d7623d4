#!lua
-- Purpose: advance: store a new admission record and append numbering rows, under the current fence and version only.
-- KEYS: 1 line (hash, as in lease.lua); 2 rows (list)
-- ARGV: 1 fence; 2 expected version; 3 new version; 4 new record; then the rows
-- Output: "advanced"; otherwise nothing changed: "fenced" or "stale"
if #ARGV < 4 or not tonumber(ARGV[1]) or not tonumber(ARGV[2]) or not tonumber(ARGV[3]) then
  return redis.error_reply('LINE advance was called with wrong arguments')
end
local held = redis.call('HMGET', KEYS[1], 'fence', 'version')
if (held[1] or '0') ~= ARGV[1] then
  return 'fenced'
end
if (held[2] or '0') ~= ARGV[2] then
  return 'stale'
end
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'record', ARGV[4])
for i = 5, #ARGV do
  redis.call('RPUSH', KEYS[2], ARGV[i])
end
return 'advanced'
