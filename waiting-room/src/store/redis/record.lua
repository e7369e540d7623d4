#!lua flags=no-writes
-- Purpose: record: read a sale's admission record and its newest numbering rows in one step.
-- KEYS: 1 line (hash, as in lease.lua); 2 rows (list)
-- ARGV: 1 first row to read; 2 most rows to read now
-- Output: the record ('' when there is none), rows there are, then the rows
local from, most = tonumber(ARGV[1]), tonumber(ARGV[2])
if not from or not most then
  return redis.error_reply('LINE record was called with wrong arguments')
end
local answer = { redis.call('HGET', KEYS[1], 'record') or '', tostring(redis.call('LLEN', KEYS[2])) }
local rows = redis.call('LRANGE', KEYS[2], from, from + most - 1)
for i = 1, #rows do
  answer[i + 2] = rows[i]
end
return answer
