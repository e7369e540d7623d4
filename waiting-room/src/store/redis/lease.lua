#!lua
-- Purpose: lease: take or keep the admitter's lease of a sale, by this server's clock.
-- KEYS: 1 line (hash: version, record, holder, until, life, fence)
-- ARGV: 1 holder; 2 life in milliseconds; 3 version of the record that the caller knows
-- Output: the fence; nil while somebody else has the lease
local holder, life, knows = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if not holder or holder == '' or not life or not knows then
  return redis.error_reply('LINE lease was called with wrong arguments')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local held = redis.call('HMGET', KEYS[1], 'holder', 'until', 'fence', 'version', 'life')
local fence, ends = tonumber(held[3] or '0'), tonumber(held[2] or '0')
-- A lease that ends later than it could was given before this clock was set.
local is_live = ends > now and ends <= now + tonumber(held[5] or life)
local has_lost = tonumber(held[4] or '0') < knows
if is_live and held[1] ~= holder and not has_lost then
  return false
end
if not is_live or held[1] ~= holder then
  fence = fence + 1
end
redis.call('HSET', KEYS[1], 'holder', holder, 'until', string.format('%.0f', now + life),
  'life', ARGV[2], 'fence', string.format('%.0f', fence))
return string.format('%.0f', fence)
