#!lua
-- Purpose: lease: take or keep the admitter's lease of a sale, by this server's clock.
-- KEYS: 1 line (hash: version, record, holder, until, fence)
-- ARGV: 1 holder; 2 life in milliseconds
-- Output: the fence; nil while somebody else has the lease
local holder, life = ARGV[1], tonumber(ARGV[2])
if not holder or holder == '' or not life then
  return redis.error_reply('LINE lease was called with wrong arguments')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local held = redis.call('HMGET', KEYS[1], 'holder', 'until', 'fence')
local fence = tonumber(held[3] or '0')
if tonumber(held[2] or '0') > now then
  if held[1] ~= holder then
    return false
  end
else
  fence = fence + 1
end
redis.call('HSET', KEYS[1], 'holder', holder, 'until', string.format('%.0f', now + life),
  'fence', string.format('%.0f', fence))
return string.format('%.0f', fence)
