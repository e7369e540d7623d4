#!lua flags=no-writes
-- Reads every count of a sale, and who has claimed once something is sold out, in one step.
-- KEYS: 1 stock, 2 accounts
-- ARGV: 1 total_limit or '', 2 most accounts to list
-- Output: {'stock', number of items, '1' if there are too many accounts to list else '0',
--     item, stock, available, held, sold, ... for each item, account, account, ...}
--   | {'suspect', why}: the sale's keys do not fit together

for index = 1, 2 do
    local found = redis.call('TYPE', KEYS[index]).ok
    if found ~= 'hash' and found ~= 'none' then
        return {'suspect', KEYS[index] .. ' is a ' .. found}
    end
end
if redis.call('HEXISTS', KEYS[1], 'frozen') == 1 then
    return {'suspect', 'the sale is frozen until its stock is rebuilt'}
end
local values = redis.call('HMGET', KEYS[1], 'items', 'total', 'accounts')
local total, accounts = tonumber(values[2] or ''), tonumber(values[3] or '')
if not (values[1] and total and accounts) then
    return {'suspect', 'the sale has no stock here'}
end
if redis.call('HLEN', KEYS[2]) ~= accounts then
    return {'suspect', 'accounts are missing'}
end
local limit = tonumber(ARGV[1])
local is_sold_out = limit and total >= limit
local answer = {'stock', '0', '0'}
local count = 0
for item in string.gmatch(values[1], '[^,]+') do
    local counts = redis.call('HMGET', KEYS[1], 'stock:' .. item, 'available:' .. item, 'held:' .. item, 'sold:' .. item)
    local stock, available = tonumber(counts[1] or ''), tonumber(counts[2] or '')
    local held, sold = tonumber(counts[3] or ''), tonumber(counts[4] or '')
    if not (stock and available and held and sold) or available + held + sold ~= stock then
        return {'suspect', 'the counts of ' .. item .. ' do not add up'}
    end
    is_sold_out = is_sold_out or available == 0
    count = count + 1
    answer[#answer + 1] = item
    for index = 1, 4 do
        answer[#answer + 1] = counts[index]
    end
end
answer[2] = tostring(count)
if is_sold_out and accounts > tonumber(ARGV[2]) then
    answer[3] = '1'
elseif is_sold_out then
    for _, account in ipairs(redis.call('HKEYS', KEYS[2])) do
        answer[#answer + 1] = account
    end
end
return answer
