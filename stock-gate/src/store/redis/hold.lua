#!lua flags=no-writes
-- Reads the hold a claim made.
-- KEYS: 1 stock, 2 holds
-- ARGV: 1 claim
-- Output: {'hold', record} | {'none'} | {'suspect', why}: the sale's keys do not fit together

for index = 1, 2 do
    local found = redis.call('TYPE', KEYS[index]).ok
    if found ~= 'hash' and found ~= 'none' then
        return {'suspect', KEYS[index] .. ' is a ' .. found}
    end
end
if redis.call('HEXISTS', KEYS[1], 'frozen') == 1 then
    return {'suspect', 'the sale is frozen until its stock is rebuilt'}
end
local claims = tonumber(redis.call('HGET', KEYS[1], 'claims') or '')
if not claims then
    return {'suspect', 'the sale has no stock here'}
end
local record = redis.call('HGET', KEYS[2], ARGV[1])
if record then
    return {'hold', record}
end
if redis.call('HLEN', KEYS[2]) ~= claims then
    return {'suspect', 'holds are missing'}
end
return {'none'}
