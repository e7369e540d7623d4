#!lua flags=no-writes
-- Reads some of the holds a sale has, in whatever state the sale is.
-- KEYS: 1 holds
-- ARGV: 1 cursor ('0' to begin), 2 about how many
-- Output: {'holds', next cursor ('0' at the end), claim, record, claim, record, ...}

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
    return {'holds', '0'}
end
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = {'holds', page[1]}
for index, text in ipairs(page[2]) do
    answer[index + 2] = text
end
return answer
