#!lua
-- Puts a staged stock in the place of the old one and reopens the sale. What is known of admissions (abandoned) and the
-- events stay.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned,
--   8 staged holds, 9 staged due, 10 staged accounts, 11 staged returned
-- ARGV: 1 freeze, 2 its generation, 3 holds, 4 due, 5 accounts, 6 returned, 7 clock, then item, stock, available, held,
--   sold, next, last for each item in the order of the sale file, and (always the last) the server's identity, for
--   which this stock is valid from now on, or '' where it is not checked
-- Output: {'reopened', generation} | {'stale'}: the sale is not frozen by this freeze
--   | {'incomplete'}: not all was staged, or it was kept too long

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' or redis.call('HGET', KEYS[1], 'frozen') ~= ARGV[1]
    or redis.call('HGET', KEYS[1], 'generation') ~= ARGV[2] then
    return {'stale'}
end
local sizes = {redis.call('HLEN', KEYS[8]), redis.call('ZCARD', KEYS[9]), redis.call('HLEN', KEYS[10]), redis.call('ZCARD', KEYS[11])}
for index = 1, 4 do
    if sizes[index] ~= tonumber(ARGV[index + 2]) then
        return {'incomplete'}
    end
end
local generation = string.format('%.0f', tonumber(ARGV[2]) + 1)
local clock = math.max(tonumber(redis.call('HGET', KEYS[1], 'clock') or '') or 0, tonumber(ARGV[7]))
local fields = {'clock', string.format('%.0f', clock), 'claims', ARGV[3], 'due', ARGV[4], 'accounts', ARGV[5],
    'generation', generation}
local items, total, held = {}, 0, 0
for index = 8, #ARGV - 1, 7 do
    items[#items + 1] = ARGV[index]
    local names = {'place:', 'stock:', 'available:', 'held:', 'sold:', 'next:', 'last:'}
    local values = {tostring(#items), unpack(ARGV, index + 1, index + 6)}
    for place, name in ipairs(names) do
        fields[#fields + 1] = name .. ARGV[index]
        fields[#fields + 1] = values[place]
    end
    held = held + tonumber(ARGV[index + 3])
    total = total + tonumber(ARGV[index + 3]) + tonumber(ARGV[index + 4])
end
for _, text in ipairs({'items', table.concat(items, ','), 'total', string.format('%.0f', total), 'held', string.format('%.0f', held)}) do
    fields[#fields + 1] = text
end

-- A claim takes a missing stream for a loss, so there is one, if only an empty one.
local stream = redis.call('TYPE', KEYS[5]).ok
if stream ~= 'stream' then
    redis.call('DEL', KEYS[5])
    redis.call('XDEL', KEYS[5], redis.call('XADD', KEYS[5], '*', 'kind', 'rebuilt'))
end
for staged, live in pairs({[8] = 2, [9] = 3, [10] = 4, [11] = 6}) do
    redis.call('UNLINK', KEYS[live])
    if redis.call('EXISTS', KEYS[staged]) == 1 then
        redis.call('RENAME', KEYS[staged], KEYS[live])
        redis.call('PERSIST', KEYS[live])
    end
end
if redis.call('TYPE', KEYS[7]).ok ~= 'hash' then
    redis.call('DEL', KEYS[7])
    redis.call('HDEL', KEYS[1], 'forfeited')
end
redis.call('HDEL', KEYS[1], 'frozen', 'frozen_why', 'identity')
if ARGV[#ARGV] ~= '' then
    redis.call('HSET', KEYS[1], 'identity', ARGV[#ARGV])
end
redis.call('HSETNX', KEYS[1], 'restocks', '0')
redis.call('HSET', KEYS[1], unpack(fields))
return {'reopened', generation}
