#!lua flags=no-writes
-- Reads the changes of the stock that were made, in whatever state the sale is.
-- KEYS: 1 stock
-- ARGV: none
-- Output: {'restocks', id, item, units added, id, item, units added, ...}

local answer = {'restocks'}
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
    return answer
end
local fields = redis.call('HGETALL', KEYS[1])
for index = 1, #fields, 2 do
    local id = string.match(fields[index], '^restock:(.*)$')
    local item, change = string.match(fields[index + 1], '^([^ ]+) ([^ ]+)$')
    if id and item then
        answer[#answer + 1] = id
        answer[#answer + 1] = item
        answer[#answer + 1] = change
    end
end
return answer
