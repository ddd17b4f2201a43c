-- Extends leases, and never shortens one.
--
-- KEYS     for each lease, the lock. Or the server's memory, the long leases, see longlease.lua,
--          and for each lease the lock and its grants. The first will do for an exclusive lease
--          while a slot of a Cluster moves
-- ARGV[1]  the minimum grace period, and
-- ARGV[2]  the longest TTL, see limits.lua
-- ARGV     then for each lease: the id, the TTL in ms
-- Answer   one text with a character for each lease: 1 if it lives, 0 if it has ended, and x
--          if an error keeps the script from telling; then the text of the last such error

local answers, failure, leases = {}, nil, #ARGV / 2 - 1
local lockOnly = #KEYS == leases
for i = 1, leases do
  local id, ttl = ARGV[2 * i + 1], tonumber(ARGV[2 * i + 2])
  if lockOnly then lock = KEYS[i] else lock, grants = KEYS[2 * i + 1], KEYS[2 * i + 2] end
  local ok, json, expiry = pcall(findGrant, id)
  if ok and not json then
    -- A replica may lag behind. It refuses this write, which changes nothing: the client leaves it.
    local no = redis.pcall('HDEL', lock, 'snib.none')
    if type(no) == 'table' and string.find(no.err, 'READONLY', 1, true) then error(no) end
  elseif ok then
    extendGrant(id, json, expiry, ttl)
    if not lockOnly then addLongLease(id, ttl) end
  end
  if not ok then failure = errorText(json) end
  answers[i] = not ok and 'x' or json and '1' or '0'
end
return {table.concat(answers), failure}
