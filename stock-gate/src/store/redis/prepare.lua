#!lua
-- Puts a sale's stock there, once.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: item, units, item, units, ... in the order of the sale file, then
--   (always the last) the server's identity, or '' where it is not checked
-- Output: {'fresh'} | {'already'}
--   | {'suspect', why}: something is left of an earlier stock; nothing was written

if redis.call('EXISTS', KEYS[1]) == 1 then
    if redis.call('TYPE', KEYS[1]).ok ~= 'hash' or redis.call('HEXISTS', KEYS[1], 'clock') == 0 then
        return {'suspect', KEYS[1] .. ' is no stock'}
    end
    if redis.call('HEXISTS', KEYS[1], 'frozen') == 1 then
        return {'suspect', 'the sale is frozen until its stock is rebuilt'}
    end
    -- Writes what is there, so that WAIT on this connection waits for the stock and not for nothing.
    redis.call('HSET', KEYS[1], 'clock', redis.call('HGET', KEYS[1], 'clock'))
    return {'already'}
end
for index = 2, 7 do
    local kind = redis.call('TYPE', KEYS[index]).ok
    -- Readers may have made the event stream before its first event.
    local is_empty = kind == 'none' or (index == 5 and kind == 'stream' and redis.call('XLEN', KEYS[5]) == 0)
    if not is_empty then
        return {'suspect', 'there is no stock, yet ' .. KEYS[index] .. ' is there'}
    end
end

local fields = {'generation', '1', 'clock', '0', 'claims', '0', 'due', '0', 'accounts', '0', 'total', '0', 'held', '0', 'restocks', '0'}
local items = {}
for index = 1, #ARGV - 1, 2 do
    local item, units = ARGV[index], ARGV[index + 1]
    items[#items + 1] = item
    for _, pair in ipairs({
        {'place:', tostring(#items)}, {'stock:', units}, {'available:', units}, {'held:', '0'}, {'sold:', '0'}, {'next:', '1'}, {'last:', units},
    }) do
        fields[#fields + 1] = pair[1] .. item
        fields[#fields + 1] = pair[2]
    end
end
fields[#fields + 1] = 'items'
fields[#fields + 1] = table.concat(items, ',')
if ARGV[#ARGV] ~= '' then
    fields[#fields + 1] = 'identity'
    fields[#fields + 1] = ARGV[#ARGV]
end
redis.call('HSET', KEYS[1], unpack(fields))
return {'fresh'}
