#!lua flags=no-writes
-- Purpose: survey: count one lane and its live rights, and read on in its logs.
-- KEYS: 1 next seq; 2 left, 3 redeemed (lists of seqs); 4 rights (as in redeem.lua)
-- ARGV: 1 how much of left was read; 2 how much of redeemed; 3 most entries of each to read now; 4 now in seconds
-- Output: {count, live rights, how much of left is read with this, of redeemed}, left seqs, redeemed seqs
local most, now = tonumber(ARGV[3]), tonumber(ARGV[4])
if not tonumber(ARGV[1]) or not tonumber(ARGV[2]) or not most or not now then
  return redis.error_reply('LINE survey was called with wrong arguments')
end

local function read_on(key, read)
  -- A list shorter than what was read has lost its tail: reading it again from the start does no harm.
  if read > redis.call('LLEN', key) then
    read = 0
  end
  local log = redis.call('LRANGE', key, read, read + most - 1)
  return log, string.format('%.0f', read + #log)
end

local left, left_read = read_on(KEYS[2], tonumber(ARGV[1]))
local redeemed, redeemed_read = read_on(KEYS[3], tonumber(ARGV[2]))
local active = redis.call('ZCOUNT', KEYS[4], '(' .. ARGV[4], '+inf')
return { { redis.call('GET', KEYS[1]) or '0', tostring(active), left_read, redeemed_read }, left, redeemed }
