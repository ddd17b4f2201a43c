-- Computes how much of the grace period is left.
--
-- KEYS      not used
-- ARGV      not used
-- Expects   now, floor, maxTTL, setMeta, start, unknown, identify
-- Provides  grace(ttl)  for how many ms no lease with this TTL may be granted; if this is not
--                       positive, it may be granted now
-- Answer    none: the files after this one answer

-- grace assumes that leases which the memory does not contain are no longer than the floor, or
-- than the requested TTL up to one minute.
local function grace(ttl)
  if not floor then return 0 end
  if not start then identify() end
  if start > now() then -- the clock was set back, so the recorded start is wrong
    start = now()
    setMeta('c', start)
  end
  return math.ceil((start - now()) / 1000
    + math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))
end
