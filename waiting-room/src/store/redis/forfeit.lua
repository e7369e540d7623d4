#!lua
-- Purpose: forfeit: end rights before their time, as if they had run out when they were given.
-- KEYS: 1 seats (as in enter.lua); 2 rights (as in redeem.lua)
-- ARGV: per right: account (16 bytes), its id or '', when it was given in seconds or '' (one of the two)
-- Output: how many rights ended by this
if #ARGV < 3 or #ARGV % 3 ~= 0 then
  return redis.error_reply('LINE forfeit was called with wrong arguments')
end
for i = 1, #ARGV, 3 do
  local by_id, by_time = ARGV[i + 1] ~= '', tonumber(ARGV[i + 2]) ~= nil
  if #ARGV[i] ~= 16 or by_id == by_time then
    return redis.error_reply('LINE forfeit was called with a wrong right')
  end
end
local ended = 0
for i = 1, #ARGV, 3 do
  local seat = redis.call('HGET', KEYS[1], ARGV[i])
  local seq, jti, issued, expires, epoch = string.match(seat or '', '^(%d+) a (%S+) (%d+) (%d+) (%d+)$')
  if jti and (jti == ARGV[i + 1] or issued == ARGV[i + 2]) and tonumber(expires) > tonumber(issued) then
    redis.call('HSET', KEYS[1], ARGV[i], seq .. ' a ' .. jti .. ' ' .. issued .. ' ' .. issued .. ' ' .. epoch)
    redis.call('ZREM', KEYS[2], seq)
    ended = ended + 1
  end
end
return ended
