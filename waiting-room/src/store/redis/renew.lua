#!lua
-- Purpose: renew: let a live right last longer, never shorter and never longer than it may.
-- KEYS: 1 seats (as in enter.lua); 2 rights (as in redeem.lua)
-- ARGV: 1 account (16 bytes); 2 the right's id; 3 now; 4 until when it is to last; 5 seconds it may last in all
--   (times in seconds)
-- Output: the seat; nil when the right is not live
local now, wanted, longest = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if #ARGV ~= 5 or #ARGV[1] ~= 16 or not now or not wanted or not longest then
  return redis.error_reply('LINE renew was called with wrong arguments')
end
local seat = redis.call('HGET', KEYS[1], ARGV[1])
local seq, jti, issued, expires, epoch = string.match(seat or '', '^(%d+) a (%S+) (%d+) (%d+) (%d+)$')
if jti ~= ARGV[2] or tonumber(expires) <= now then
  return false
end
local ends = math.max(math.min(wanted, tonumber(issued) + longest), tonumber(expires))
local text = string.format('%.0f', ends)
seat = seq .. ' a ' .. jti .. ' ' .. issued .. ' ' .. text .. ' ' .. epoch
redis.call('HSET', KEYS[1], ARGV[1], seat)
-- Whoever has bought is not active any more, however long the right lasts.
redis.call('ZADD', KEYS[2], 'XX', text, seq)
return seat
