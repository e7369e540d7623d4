#!lua
-- Purpose: enter: give each account its place in one lane, in order; whoever has to be listed and is not gets none.
-- KEYS: 1 seats (hash: account -> "<seq>" | "<seq> a <jti> <issued> <expires> <epoch>" | "<seq> l"); 2 next seq;
--   3 allowed (as in allow.lua)
-- ARGV: 1 now in seconds; 2 missed below; 3 numbered; then per entry: account (16 bytes), ticket seq or '',
--   another missed seq or '', hash of the address to be listed with (12 bytes) or ''
-- Output: per entry "<1 if the place is new, else 0> <seat>", "not_listed", or "no_list" where nobody is listed at all
local now, missed, numbered = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now or not missed or not numbered or #ARGV < 7 or #ARGV % 4 ~= 3 then
  return redis.error_reply('LINE enter was called with wrong arguments')
end
local stored_next = tonumber(redis.call('GET', KEYS[2]) or '0')
local next = stored_next
local written, order, answers = {}, {}, {}

local function put(account, seq)
  local text = string.format('%.0f', seq)
  if not written[account] then
    order[#order + 1] = account
  end
  written[account] = text
  if seq >= next then
    next = seq + 1
  end
  return text
end

-- The place of the entry that begins at ARGV[i]; nil when the seat that is there cannot be read.
local function enter(i, account)
  local ticket, passed = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local seat = written[account] or redis.call('HGET', KEYS[1], account)
  local seq, rest = nil, nil
  if seat then
    seq, rest = string.match(seat, '^(%d+)(.*)$')
    seq = tonumber(seq)
    if not seq then
      return nil
    end
  end
  if ticket and ticket >= missed and ticket ~= passed and (not seq or seq < ticket) then
    return '0 ' .. put(account, ticket)
  end
  local stands = false
  if seq and rest == '' then
    stands = seq >= missed and seq ~= passed
  elseif seq and rest ~= ' l' then
    stands = tonumber(string.match(rest, '^ a %S+ %d+ (%d+) %d+$')) > now
  end
  if stands then
    return '0 ' .. seat
  end
  return '1 ' .. put(account, math.max(next, numbered))
end

for i = 4, #ARGV, 4 do
  local account, listed_as = ARGV[i], ARGV[i + 3]
  if #account ~= 16 or (ARGV[i + 1] ~= '' and not tonumber(ARGV[i + 1]))
    or (ARGV[i + 2] ~= '' and not tonumber(ARGV[i + 2])) or (listed_as ~= '' and #listed_as ~= 12) then
    return redis.error_reply('LINE enter was called with a wrong entry')
  end
  local answer = 'not_listed'
  if listed_as == '' or redis.call('HGET', KEYS[3], string.sub(account, 1, 12)) == listed_as then
    answer = enter(i, account)
  elseif redis.call('EXISTS', KEYS[3]) == 0 then
    answer = 'no_list'
  end
  if not answer then
    return redis.error_reply('LINE a seat cannot be read')
  end
  answers[#answers + 1] = answer
end

for _, account in ipairs(order) do
  redis.call('HSET', KEYS[1], account, written[account])
end
if next ~= stored_next then
  redis.call('SET', KEYS[2], string.format('%.0f', next))
end
return answers
