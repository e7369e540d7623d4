#!lua
-- Purpose: allow: put accounts on a lane's allowlist; the last address of an account counts.
-- KEYS: 1 allowed (hash: first 12 bytes of the account -> hash of the address, 12 bytes)
-- ARGV: per account: its first 12 bytes, the hash of its address (12 bytes)
-- Output: {added, there with this address, there with another address}
if #ARGV < 2 or #ARGV % 2 ~= 0 then
  return redis.error_reply('LINE allow was called with wrong arguments')
end
for i = 1, #ARGV do
  if #ARGV[i] ~= 12 then
    return redis.error_reply('LINE allow was called with a wrong line')
  end
end
local added, unchanged, changed = 0, 0, 0
for i = 1, #ARGV, 2 do
  local found = redis.call('HGET', KEYS[1], ARGV[i])
  if found == ARGV[i + 1] then
    unchanged = unchanged + 1
  else
    if found then
      changed = changed + 1
    else
      added = added + 1
    end
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
return { added, unchanged, changed }
