-- Reads the limits of the grace period, in milliseconds.
--
-- ARGV[1]   the minimum grace period, or text that is no number if failover-grace is off
-- ARGV[2]   the longest TTL
-- Provides  floor   the minimum grace period, or nil
--           maxTTL  the longest TTL
--           isLong(ttl)  reports whether a lease with this TTL is longer than the floor

local floor, maxTTL = tonumber(ARGV[1]), tonumber(ARGV[2])

local function isLong(ttl) return floor and ttl > floor end
