#!lua
-- Begins every script that writes to an open stock (put behind the script's own first line): whatever is not as the gate
-- left it stops the script before its first write.
-- KEYS: 1 stock, 2 holds, 3 due, 4 accounts, 5 events, 6 returned, 7 abandoned
-- ARGV: (always the last) the server's identity, or '' where it is not checked
-- Output: none, or {'suspect', why}: the sale's keys do not fit together; nothing was written
local kinds = {'hash', 'hash', 'zset', 'hash', 'stream', 'zset', 'hash'}
local found = {}
for index, kind in ipairs(kinds) do
    found[index] = redis.call('TYPE', KEYS[index]).ok
    if found[index] ~= kind and found[index] ~= 'none' then
        return {'suspect', KEYS[index] .. ' is a ' .. found[index]}
    end
end
if redis.call('HEXISTS', KEYS[1], 'frozen') == 1 then
    return {'suspect', 'the sale is frozen until its stock is rebuilt'}
end
-- A stock made before identities were kept has none; the first write adopts it.
local identity, left_by = ARGV[#ARGV], redis.call('HGET', KEYS[1], 'identity')
if identity ~= '' and left_by and left_by ~= identity then
    return {'suspect', 'the stock was left by another server process'}
end
