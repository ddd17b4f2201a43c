-- Leaves the lock free for a moment, for clients of other libraries.
--
-- KEYS      queue
-- Expects   now, absence, extendTo, numberIn, queue, findRequest; hint.lua, queue.lua
-- Provides  yieldIfDue(json, every) makes waiters leave the lock free for a moment

-- yieldIfDue is called with a grant that has just ended. It does nothing unless a multiple of every
-- ms, by the clock, lies in its hold. Holds follow each other without a gap while others wait, so
-- that happens once in every ms. It wakes the first waiter that it can reach, which then asks again
-- when the time is over.
local function yieldIfDue(json, every)
  every = every * 1000
  if math.floor(numberIn(json, 'since') / every) >= math.floor(now() / every) then return end
  redis.call('ZADD', queue, string.format('%d', -now() - yieldTime * 1000), yieldMark)
  extendTo(queue, yieldTime)
  for first in firstWaiter do
    local request, entry = findRequest(first)
    if request and entryTime(entry) + absence >= now() and wake(request) then return end
    dequeue(first)
  end
end
