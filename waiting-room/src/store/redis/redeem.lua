#!lua
-- Purpose: redeem: exchange places whose turn has come for rights to check out, in order, each once; the same again
-- afterwards.
-- KEYS: 1 seats (as in enter.lua); 2 next seq; 3 rights (sorted set: seq by end); 4 redeemed (list of seqs, append-only)
-- ARGV: 1 how long ended rights are kept; then per turn: account (16 bytes), seq, jti, issued, expires, epoch, now
--   (times in seconds)
-- Output: per turn the seat "<seq> a <jti> <issued> <expires> <epoch>", or "superseded", "left", "lapsed"
local kept = tonumber(ARGV[1])
if not kept or #ARGV < 8 or #ARGV % 7 ~= 1 then
  return redis.error_reply('LINE redeem was called with wrong arguments')
end
local stored_next = tonumber(redis.call('GET', KEYS[2]) or '0')
local next = stored_next
local written, order, answers, rights = {}, {}, {}, {}

-- What the place becomes, or is; second, whether that must be written; third, the end of its first right.
local function redeem(seat, i)
  local seq, jti, issued, expires, epoch = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local first_expires = expires
  if seat then
    local held, rest = string.match(seat, '^(%d+)(.*)$')
    held = tonumber(held)
    if not held then
      return nil
    end
    if held > tonumber(seq) then
      return 'superseded', false
    end
    if held == tonumber(seq) and rest == ' l' then
      return 'left', false
    end
    if held == tonumber(seq) and rest ~= '' then
      local old_expires, old_epoch = string.match(rest, '^ a %S+ %d+ (%d+) (%d+)$')
      if tonumber(old_expires) <= tonumber(ARGV[i + 6]) then
        return 'lapsed', false
      end
      if tonumber(old_epoch) >= tonumber(epoch) then
        return seat, false
      end
      expires, first_expires = old_expires, nil
    end
  end
  return seq .. ' a ' .. jti .. ' ' .. issued .. ' ' .. expires .. ' ' .. epoch, true, first_expires
end

for i = 2, #ARGV, 7 do
  local account, seq = ARGV[i], tonumber(ARGV[i + 1])
  if #account ~= 16 or not seq or ARGV[i + 2] == '' or not tonumber(ARGV[i + 4])
    or not tonumber(ARGV[i + 5]) or not tonumber(ARGV[i + 6]) then
    return redis.error_reply('LINE redeem was called with a wrong turn')
  end
  local answer, writes, first_expires = redeem(written[account] or redis.call('HGET', KEYS[1], account), i)
  if not answer then
    return redis.error_reply('LINE a seat cannot be read')
  end
  if writes then
    if not written[account] then
      order[#order + 1] = account
    end
    written[account] = answer
    next = math.max(next, seq + 1)
    if first_expires then
      rights[#rights + 1] = { ARGV[i + 1], first_expires, string.format('%.0f', tonumber(ARGV[i + 6]) - kept) }
    end
  end
  answers[#answers + 1] = answer
end

for _, account in ipairs(order) do
  redis.call('HSET', KEYS[1], account, written[account])
end
for _, right in ipairs(rights) do
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', right[3])
  redis.call('ZADD', KEYS[3], right[2], right[1])
  redis.call('RPUSH', KEYS[4], right[1])
end
if next ~= stored_next then
  redis.call('SET', KEYS[2], string.format('%.0f', next))
end
return answers
