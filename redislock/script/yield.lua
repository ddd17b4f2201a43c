-- Leaves the lock free for a moment, for clients of other libraries.
--
-- KEYS      queue
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
    local request = parseRequest(first)
    if request and isAlive(request.id, redis.call('ZSCORE', queue, first)) and wake(request) then
      return
    end
    dequeue(first, request and request.id)
  end
end
