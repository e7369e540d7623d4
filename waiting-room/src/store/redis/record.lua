#!lua flags=no-writes
-- Purpose: record: read a sale's admission record and its newest numbering rows in one step.
-- KEYS: 1 line (hash, as in lease.lua and fold.lua); 2 rows (list)
-- ARGV: 1 first row to read; 2 most rows to read now
-- Output: the record ('' when there is none), rows written in all, rows folded away, then the rows
local from, most = tonumber(ARGV[1]), tonumber(ARGV[2])
if not from or not most then
  return redis.error_reply('LINE record was called with wrong arguments')
end
local held = redis.call('HMGET', KEYS[1], 'record', 'rows_first')
local first = tonumber(held[2] or '0')
local total = string.format('%.0f', first + redis.call('LLEN', KEYS[2]))
local answer = { held[1] or '', total, held[2] or '0' }
from = math.max(from - first, 0)
local rows = redis.call('LRANGE', KEYS[2], from, from + most - 1)
for i = 1, #rows do
  answer[i + 3] = rows[i]
end
return answer
