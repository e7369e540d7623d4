#!lua
-- Purpose: conclude: accounts that have bought are no longer active, though the right itself stands.
-- KEYS: 1 seats (as in enter.lua); 2 rights (as in redeem.lua)
-- ARGV: accounts (16 bytes each)
-- Output: how many rights ended by this
for i = 1, #ARGV do
  if #ARGV[i] ~= 16 then
    return redis.error_reply('LINE conclude was called with a wrong account')
  end
end
local ended = 0
for i = 1, #ARGV do
  local seat = redis.call('HGET', KEYS[1], ARGV[i])
  local seq = seat and string.match(seat, '^%d+')
  if seq then
    ended = ended + redis.call('ZREM', KEYS[2], seq)
  end
end
return ended
