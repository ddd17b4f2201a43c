-- Finds the longest TTL of the long leases that still live. It writes nothing.
--
-- KEYS[2]  the long leases, see longlease.lua
-- Expects  now
-- Answer   the TTL in ms, or 0

local longest = 0
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now()), '+inf')) do
  longest = math.max(longest, tonumber(string.match(lease, '^%d+')) or 0)
end
return {string.format('%d', longest)}
