#!lua flags=no-writes
-- Reads how often a sale's stock was put there, in whatever state the sale is.
-- KEYS: 1 stock
-- ARGV: none
-- Output: {'generation', number} | {'none'}

local generation = redis.call('TYPE', KEYS[1]).ok == 'hash' and tonumber(redis.call('HGET', KEYS[1], 'generation') or '')
if not generation then
    return {'none'}
end
return {'generation', string.format('%.0f', generation)}
