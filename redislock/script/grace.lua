-- Computes how much of the grace period is left. All times of the memory are changed only if
-- another server wrote last, see identity.lua.
--
-- Provides  contended   declared here, and defined in contended.lua
--           grace(ttl)  for how many ms no lease with this TTL may be granted; if this is not
--                       positive, it may be granted now
--           start, unknown  fields c and x of the memory, see memory.lua; nil before grace

local contended
local start, unknown

-- grace assumes that leases which the memory does not contain are no longer than the floor, or
-- than the requested TTL up to one minute.
local function grace(ttl)
  if not floor then return 0 end
  if not start then
    local past, info = memory(), redis.call('INFO', 'server')
    start, unknown = tonumber(past[3]) or 0, tonumber(past[4]) or 0
    local isSame = past[2] and string.find(info, past[2], 1, true)
    if not isSame then contended().rare().identify(info) end
  end
  if start > now() then -- the clock was set back, so the recorded start is wrong
    start = now()
    setMeta('c', start)
  end
  return math.ceil((start - now()) / 1000
    + math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))
end
