#!lua flags=no-writes
-- Purpose: survey: count one lane and read what was given up since the last survey.
-- KEYS: 1 next seq; 2 left (list of seqs)
-- ARGV: 1 how much of the list was read; 2 most entries to read now
-- Output: count, how much of the list is read with this, then the seqs
local read, most = tonumber(ARGV[1]), tonumber(ARGV[2])
if not read or not most then
  return redis.error_reply('LINE survey was called with wrong arguments')
end
-- A list shorter than what was read has lost its tail: reading it again from the start does no harm.
if read > redis.call('LLEN', KEYS[2]) then
  read = 0
end
local left = redis.call('LRANGE', KEYS[2], read, read + most - 1)
local answer = { redis.call('GET', KEYS[1]) or '0', string.format('%.0f', read + #left) }
for i = 1, #left do
  answer[i + 2] = left[i]
end
return answer
