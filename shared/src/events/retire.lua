#!lua flags=allow-oom
-- Removes the consumers of a group that hold nothing and have not asked for long: their processes are gone. In one step
-- with the look at what they hold, because removing a consumer forgets what was given to it.
-- KEYS: 1 events
-- ARGV: 1 group; 2 milliseconds without a word
-- Output: how many

if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then
    return 0
end
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then
    return 0
end
local gone = {}
for _, reply in ipairs(consumers) do
    local fields = {}
    for index = 1, #reply, 2 do
        fields[reply[index]] = reply[index + 1]
    end
    if fields['pending'] == 0 and fields['idle'] >= tonumber(ARGV[2]) then
        gone[#gone + 1] = fields['name']
    end
end
for _, name in ipairs(gone) do
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
end
return #gone
