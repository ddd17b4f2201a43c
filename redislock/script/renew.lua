-- Extends leases, and never shortens one.
--
-- KEYS     if ARGV[3] is 2: the server's memory, and the long leases, see longlease.lua
-- KEYS     then for each lease: the lock and, if ARGV[3] is 2, its grants. Exclusive leases that
--          are not long need no other key, which matters while a slot of a Cluster moves
-- ARGV[1]  the minimum grace period, and
-- ARGV[2]  the longest TTL, see limits.lua
-- ARGV[3]  the number of keys of each lease
-- ARGV     then for each lease: the id, the TTL in ms
-- Answer   one text with a character for each lease: 1 if it lives, 0 if it has ended, and x
--          if an error keeps the script from telling; then the text of the last such error

local answers, failure, step = {}, nil, tonumber(ARGV[3])
for i = 1, (#ARGV - 3) / 2 do
  local id, ttl = ARGV[2 * i + 2], tonumber(ARGV[2 * i + 3])
  if step == 2 then lock, grants = KEYS[2 * i + 1], KEYS[2 * i + 2] else lock = KEYS[i] end
  local ok, json, expiry = pcall(findGrant, id)
  if ok and not json then
    confirmLost()
  elseif ok then
    extendGrant(id, json, expiry, ttl)
    if step == 2 then addLongLease(lock, id, ttl) end
  end
  if not ok then failure = errorText(json) end
  answers[i] = not ok and 'x' or json and '1' or '0'
end
return {table.concat(answers), failure}
