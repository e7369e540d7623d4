#!lua
-- Purpose: fold: drop the numbering rows before one whose counts hold theirs, under the current fence only.
-- KEYS: 1 line (hash, as in lease.lua; rows_first: rows dropped so far); 2 rows (list)
-- ARGV: 1 fence; 2 position of the first row to keep
-- Output: "advanced"; "fenced" when nothing changed
local first = tonumber(ARGV[2])
if #ARGV ~= 2 or not tonumber(ARGV[1]) or not first then
  return redis.error_reply('LINE fold was called with wrong arguments')
end
local held = redis.call('HMGET', KEYS[1], 'fence', 'rows_first')
if (held[1] or '0') ~= ARGV[1] then
  return 'fenced'
end
local folded = first - tonumber(held[2] or '0')
if folded > 0 then
  redis.call('LTRIM', KEYS[2], folded, -1)
  redis.call('HSET', KEYS[1], 'rows_first', string.format('%.0f', first))
end
return 'advanced'
