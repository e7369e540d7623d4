#!lua
-- Purpose: forfeit: end rights before their time, as if they had run out when they were given.
-- KEYS: 1 seats (as in enter.lua); 2 rights (as in redeem.lua)
-- ARGV: per right: account (16 bytes), when it was given in seconds
-- Output: how many rights ended by this
if #ARGV < 2 or #ARGV % 2 ~= 0 then
  return redis.error_reply('LINE forfeit was called with wrong arguments')
end
for i = 1, #ARGV, 2 do
  if #ARGV[i] ~= 16 or not tonumber(ARGV[i + 1]) then
    return redis.error_reply('LINE forfeit was called with a wrong right')
  end
end
local ended = 0
for i = 1, #ARGV, 2 do
  local seat = redis.call('HGET', KEYS[1], ARGV[i])
  local seq, jti, issued, expires, epoch = string.match(seat or '', '^(%d+) a (%S+) (%d+) (%d+) (%d+)$')
  if issued == ARGV[i + 1] and tonumber(expires) > tonumber(issued) then
    redis.call('HSET', KEYS[1], ARGV[i], seq .. ' a ' .. jti .. ' ' .. issued .. ' ' .. issued .. ' ' .. epoch)
    redis.call('ZREM', KEYS[2], seq)
    ended = ended + 1
  end
end
return ended
