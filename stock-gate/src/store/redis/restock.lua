#!lua
-- Adds units to an item, or withdraws free ones, all or none, once for each id.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: 1 the change's id, 2 item, 3 units to add (to withdraw where negative), 4 most units of an item,
--   5 highest unit number, 6 most changes of a sale, 7 '1' where the sale's definition includes this change: it was made
--   before, 8 total_limit or '', 9 (always the last) the server's identity, or '' where it is not checked
-- Output: {'changed', stock, available, held, sold, '1' if it was made before else '0'}
--   | {'taken', stock, available, held, sold, units that stay at least}
--   | {'too_many', stock, available, held, sold, most units of an item}
--   | {'below_total_limit', limit, units all items would have together}
--   | {'too_many_changes'} | {'mismatch'}: the id names another change | {'no_such_item'}
--   | {'suspect', why}: the sale's keys do not fit together; nothing was written

local restocks = tonumber(redis.call('HGET', KEYS[1], 'restocks') or '')
if not restocks then
    return {'suspect', 'the sale has no stock here'}
end

local item, change = ARGV[2], tonumber(ARGV[3])
local made = ARGV[2] .. ' ' .. ARGV[3]
local known = redis.call('HGET', KEYS[1], 'restock:' .. ARGV[1])
if known and known ~= made then
    return {'mismatch'}
end
local words = {'place', 'stock', 'available', 'held', 'sold', 'next', 'last'}
local fields = {}
for index, word in ipairs(words) do
    fields[index] = word .. ':' .. item
end
local values = redis.call('HMGET', KEYS[1], unpack(fields))
if not values[1] then
    return {'no_such_item'}
end
local shelf = {}
for index, word in ipairs(words) do
    shelf[word] = tonumber(values[index] or '')
    if not shelf[word] then
        return {'suspect', KEYS[1] .. ' has no ' .. fields[index]}
    end
end
local function answer(word, last)
    local count = function(number) return string.format('%.0f', number) end
    return {word, count(shelf.stock), count(shelf.available), count(shelf.held), count(shelf.sold), last}
end
if known or ARGV[7] == '1' then
    return answer('changed', '1')
end
local first = shelf.place * 4294967296
local returned = redis.call('ZCOUNT', KEYS[6], first, first + 4294967295)
if shelf.available + shelf.held + shelf.sold ~= shelf.stock
    or returned + shelf.last + 1 - shelf.next ~= shelf.available then
    return {'suspect', 'the counts of ' .. item .. ' do not add up'}
end
if restocks >= tonumber(ARGV[6]) then
    return {'too_many_changes'}
end
local limit = tonumber(ARGV[8])
if limit and change < 0 then
    local total = change
    for other in string.gmatch(redis.call('HGET', KEYS[1], 'items') or '', '[^,]+') do
        total = total + (tonumber(redis.call('HGET', KEYS[1], 'stock:' .. other) or '') or 0)
    end
    if total < limit then
        return {'below_total_limit', ARGV[8], string.format('%.0f', math.max(total, 0))}
    end
end
local cut = nil
if change >= 0 then
    if shelf.stock + change > tonumber(ARGV[4]) or shelf.last + change > tonumber(ARGV[5]) then
        return answer('too_many', ARGV[4])
    end
    shelf.last = shelf.last + change
else
    local least = math.max(shelf.held + shelf.sold, 1)
    if shelf.stock + change < least then
        return answer('taken', string.format('%.0f', least))
    end
    local from_top = math.min(-change, shelf.last + 1 - shelf.next)
    shelf.last = shelf.last - from_top
    local withdrawn = -change - from_top
    if withdrawn > 0 then
        cut = redis.call('ZREVRANGEBYSCORE', KEYS[6], first + 4294967295, first, 'WITHSCORES', 'LIMIT', withdrawn - 1, 1)[2]
    end
end
shelf.stock = shelf.stock + change
shelf.available = shelf.available + change

redis.call('HSET', KEYS[1], 'restocks', restocks + 1, 'restock:' .. ARGV[1], made, 'stock:' .. item, shelf.stock,
    'available:' .. item, shelf.available, 'last:' .. item, shelf.last)
if cut then
    redis.call('ZREMRANGEBYSCORE', KEYS[6], cut, first + 4294967295)
end
return answer('changed', '0')
