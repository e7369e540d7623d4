#!lua
-- Purpose: store a sale in the catalog, only from the version the caller saw.
-- KEYS: 1 the catalog, a hash of sale id -> "<version> <body>"
-- ARGV: 1 sale id; 2 expected version, empty when there must be no such sale; 3 new version; 4 new body
-- Output: "stored"; otherwise nothing changed: "absent" when there is no such sale, else the version it has
local found = redis.call('HGET', KEYS[1], ARGV[1])
local version = ''
if found then
  version = string.match(found, '^(%d+) ')
  if not version then
    return redis.error_reply('CATALOG the entry of this sale has no version')
  end
end
if version ~= ARGV[2] then
  return version == '' and 'absent' or version
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. ARGV[4])
return 'stored'
