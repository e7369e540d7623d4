#!lua flags=allow-oom
-- Removes the oldest events that every group of the stream has acknowledged. Allowed when memory is full: it makes room.
-- Whole nodes of the stream are removed, so a few more may stay than must.
-- KEYS: 1 events
-- ARGV: 1 newest events to keep; 2 and further: groups that must be there
-- Output: {'trimmed', how many}
--   | {'missing', group}: nothing was removed

if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then
    return {'trimmed', '0'}
end

local function parts(id)
    local milliseconds, sequence = string.match(id, '^(%d+)-(%d+)$')
    return tonumber(milliseconds), tonumber(sequence)
end

local function is_below(a, b)
    local a_ms, a_seq = parts(a)
    local b_ms, b_seq = parts(b)
    return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)
end

local groups, lowest = {}, nil
for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local fields = {}
    for index = 1, #reply, 2 do
        fields[reply[index]] = reply[index + 1]
    end
    groups[fields['name']] = true
    local needed = fields['last-delivered-id']
    if fields['pending'] > 0 then
        local oldest = redis.call('XPENDING', KEYS[1], fields['name'])[2]
        if is_below(oldest, needed) then
            needed = oldest
        end
    end
    if not lowest or is_below(needed, lowest) then
        lowest = needed
    end
end
for index = 2, #ARGV do
    if not groups[ARGV[index]] then
        return {'missing', ARGV[index]}
    end
end

local excess = redis.call('XLEN', KEYS[1]) - tonumber(ARGV[1])
if excess <= 0 or not lowest then
    return {'trimmed', '0'}
end
-- Bounded, so that no other script waits long.
local limit = string.format('%.0f', math.min(excess, 10000))
return {'trimmed', tostring(redis.call('XTRIM', KEYS[1], 'MINID', '~', lowest, 'LIMIT', limit))}
