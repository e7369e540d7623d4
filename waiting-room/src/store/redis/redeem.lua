#!lua
-- Purpose: redeem: exchange a place whose turn has come for a right to check out, once; the same again afterwards.
-- KEYS: 1 seats (as in enter.lua); 2 next seq; 3 rights (sorted set: seq by end); 4 redeemed (list of seqs, append-only)
-- ARGV: 1 account (16 bytes); 2 seq; 3 jti; 4 issued; 5 expires; 6 epoch; 7 now; 8 how long ended rights are kept
--   (times in seconds)
-- Output: the seat "<seq> a <jti> <issued> <expires> <epoch>", or "superseded", "left", "lapsed"
local account, seq, jti = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local issued, expires, epoch, now, kept = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
if #ARGV ~= 8 or #account ~= 16 or not seq or not now or not kept or not tonumber(expires) or jti == '' then
  return redis.error_reply('LINE redeem was called with wrong arguments')
end
local seat = redis.call('HGET', KEYS[1], account)
local is_first = true
if seat then
  local held, rest = string.match(seat, '^(%d+)(.*)$')
  held = tonumber(held)
  if not held then
    return redis.error_reply('LINE a seat cannot be read')
  end
  if held > seq then
    return 'superseded'
  end
  if held == seq and rest == ' l' then
    return 'left'
  end
  if held == seq and rest ~= '' then
    local old_expires, old_epoch = string.match(rest, '^ a %S+ %d+ (%d+) (%d+)$')
    if tonumber(old_expires) <= now then
      return 'lapsed'
    end
    if tonumber(old_epoch) >= tonumber(epoch) then
      return seat
    end
    expires, is_first = old_expires, false
  end
end
local stored_next = tonumber(redis.call('GET', KEYS[2]) or '0')
local admitted = ARGV[2] .. ' a ' .. jti .. ' ' .. issued .. ' ' .. expires .. ' ' .. epoch
redis.call('HSET', KEYS[1], account, admitted)
if is_first then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - kept))
  redis.call('ZADD', KEYS[3], expires, ARGV[2])
  redis.call('RPUSH', KEYS[4], ARGV[2])
end
if seq >= stored_next then
  redis.call('SET', KEYS[2], string.format('%.0f', seq + 1))
end
return admitted
