-- Reads the limits of the grace period, in milliseconds.
--
-- KEYS      not used
-- ARGV[1]   the minimum grace period, or text that is no number if failover-grace is off
-- ARGV[2]   the longest TTL
-- Provides  floor   the minimum grace period, or nil
--           maxTTL  the longest TTL
-- Answer    none: the files after this one answer

local floor, maxTTL = tonumber(ARGV[1]), tonumber(ARGV[2])
