-- Computes how much of the grace period is left.
--
-- KEYS      not used
-- ARGV[4]   the server was found to be the one that wrote last from this time on, and
-- ARGV[5]   this result is valid until then, both in microseconds, for TTLs of up to
-- ARGV[6]   ms
-- Expects   now, floor, maxTTL, setMeta, start, unknown, identify
-- Provides  grace(ttl)  for how many ms no lease with this TTL may be granted; if this is not
--                       positive, it may be granted now
--           checked()   if the server was identified, and leases of up to the floor may be
--                       granted, what follows the answers, as in fastpath.lua, without the token
-- Answer    none: the files after this one answer

local vouchedTTL = now >= tonumber(ARGV[4]) and now < tonumber(ARGV[5]) and tonumber(ARGV[6]) or 0

-- grace assumes that leases which the memory does not contain are no longer than the floor, or
-- than the requested TTL up to one minute.
local function grace(ttl)
  if not floor or ttl <= vouchedTTL then return 0 end
  if not start then identify() end
  if start > now then -- the clock was set back, so the recorded start is wrong
    start = now
    setMeta('c', start)
  end
  return math.ceil((start - now) / 1000
    + math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))
end

local function checked()
  if floor and start and grace(floor) <= 0 then return string.format('v %d %d', now, floor) end
end
