#!lua flags=allow-oom
-- Closes a sale until its stock is rebuilt, whatever is left of it. Allowed when memory is full: a suspicious sale must
-- close.
-- KEYS: 1 stock, 2 events
-- ARGV: 1 an id for the freeze, 2 '' or the generation to freeze, 3 generation at least, 4 why,
--   5 the server's identity, which does not matter here
-- Output: {'frozen', id of the freeze that stands, generation} | {'rebuilt', generation}: it has another generation

local kind = redis.call('TYPE', KEYS[1]).ok
local generation, frozen = nil, nil
if kind == 'hash' then
    generation = tonumber(redis.call('HGET', KEYS[1], 'generation') or '')
    frozen = redis.call('HGET', KEYS[1], 'frozen')
end
-- What is no log keeps every reader from its work, and with it the rebuild.
local log = redis.call('TYPE', KEYS[2]).ok
if log ~= 'stream' and log ~= 'none' then
    redis.call('DEL', KEYS[2])
end
local id = string.gsub('xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx', '[x-]', {x = '%x', ['-'] = '%-'})
if frozen and generation and string.match(frozen, '^' .. id .. '$') then
    return {'frozen', frozen, string.format('%.0f', generation)}
end
if ARGV[2] ~= '' and not frozen and generation and generation ~= tonumber(ARGV[2]) then
    return {'rebuilt', string.format('%.0f', generation)}
end
local text = string.format('%.0f', math.max(generation or 0, tonumber(ARGV[3])))
if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'frozen', ARGV[1], 'frozen_why', ARGV[4], 'generation', text)
return {'frozen', ARGV[1], text}
