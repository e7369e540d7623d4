#!lua
-- Purpose: leave: give a place up and note it in the lane's log; one that became a right only where that right is
-- forfeited.
-- KEYS: 1 seats (as in enter.lua); 2 next seq; 3 left (list of seqs, append-only);
--   4 rights (as in redeem.lua)
-- ARGV: 1 account (16 bytes); 2 seq; 3 the forfeited right's id or ''
-- Output: "left", "superseded", or "admitted <jti>": the place holds this right, and nothing was written
local account, seq = ARGV[1], tonumber(ARGV[2])
if #ARGV ~= 3 or #account ~= 16 or not seq then
  return redis.error_reply('LINE leave was called with wrong arguments')
end
local seat = redis.call('HGET', KEYS[1], account)
local held = seat and tonumber(string.match(seat, '^(%d+)'))
if held and held > seq then
  return 'superseded'
end
if held == seq and string.sub(seat, -2) == ' l' then
  return 'left'
end
local jti = held == seq and string.match(seat, '^%d+ a (%S+) ')
if jti and jti ~= ARGV[3] then
  return 'admitted ' .. jti
end
local stored_next = tonumber(redis.call('GET', KEYS[2]) or '0')
redis.call('HSET', KEYS[1], account, ARGV[2] .. ' l')
redis.call('RPUSH', KEYS[3], ARGV[2])
redis.call('ZREM', KEYS[4], ARGV[2])
if seq >= stored_next then
  redis.call('SET', KEYS[2], string.format('%.0f', seq + 1))
end
return 'left'
