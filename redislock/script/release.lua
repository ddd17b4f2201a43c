-- Releases a hold.
--
-- KEYS      lock, queue
-- ARGV      id, how often to leave the lock free for other libraries, in ms, or 0 (YieldToForeign)
-- Provides  removeExclusive(id, json, yieldEvery)  removes an exclusive hold, and serves the queue
--           release(id, yieldEvery)
-- Answer    o or l, see batch.lua

-- removeExclusive is given yieldEvery only if the holder itself releases.
local function removeExclusive(id, json, yieldEvery)
  if isLong(numberIn(json, 'ttl')) then contended().rare().removeLongLease(id, json) end
  redis.call('DEL', lock)
  if yieldEvery and yieldEvery ~= '0' then contended().rare().yieldIfDue(json, yieldEvery) end
  local head = redis.call('ZRANGE', queue, '0', '0', 'WITHSCORES')
  if head[1] then contended().serveQueue(nil, false, head) end
  return 'o'
end

local function release(id, yieldEvery)
  local json = redis.pcall('GET', lock)
  if type(json) ~= 'string' or string.find(json, grantHead(id), 1, true) ~= 1
    or not string.find(json, '"minhold":0,', 1, true) then
    return contended().rare().R(id, yieldEvery)
  end
  return removeExclusive(id, json, yieldEvery)
end
