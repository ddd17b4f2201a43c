-- Serves the queue of a lock in order of arrival. Numbers in commands are texts where they can be:
-- Redis converts others by printf.
--
-- KEYS      queue, requests
-- ARGV      not used
-- Expects   now, absence, handOverTTL, extendTo, grace, queue, requests; token.lua, entry.lua,
--           hint.lua and hold.lua
-- Provides  dequeue(id)             removes a waiter
--           firstWaiter()           the id at the head of the queue, or nil
--           yieldLeft()             for how many ms waiters must leave the lock free, or nil
--           yieldIfDue(json, every) makes waiters leave the lock free for a moment
--           serveQueue(self, value) grants the lock to waiters for as long as that is possible. The
--                                   value is that of the lock's key, or nil if it is not known
-- Answer    none: the files after this one answer

local function dequeue(id)
  redis.call('ZREM', queue, id)
  redis.call('HDEL', requests, id)
end

-- While yieldMark is at the head of the queue, the lock is left to clients that are not in the
-- queue: those of other libraries, which poll. Its score is the end of that time, negative so that
-- no waiter comes before it. No id is equal to it, because ids have quotes.
local yieldMark, yieldTime = 'yield', 300

local function firstWaiter()
  local first = redis.call('ZRANGE', queue, '0', '1')
  if first[1] == yieldMark then return first[2] end
  return first[1]
end

-- yieldLeft ignores a time that is too far ahead: the clock was set back.
local function yieldLeft()
  local first = redis.call('ZRANGE', queue, '0', '0', 'WITHSCORES')
  if first[1] ~= yieldMark then return end
  local left = math.ceil((-first[2] - now()) / 1000)
  return left > 0 and left <= yieldTime and left or nil
end

-- yieldIfDue is called with a grant that has just ended. It does nothing unless a multiple of every
-- ms, by the clock, lies in its hold. Holds follow each other without a gap while others wait, so
-- that happens once in every ms. It wakes the first waiter that it can reach, which then asks again
-- when the time is over.
local function yieldIfDue(json, every)
  if not every or every == '0' then return end
  every = every * 1000
  if math.floor(numberIn(json, 'since') / every) >= math.floor(now() / every) then return end
  redis.call('ZADD', queue, string.format('%d', -now() - yieldTime * 1000), yieldMark)
  extendTo(queue, yieldTime)
  for first in firstWaiter do
    local request, entry = findRequest(first)
    if request and entryTime(entry) + absence >= now()
      and (request.blind or isListening(request)) then return wake(request) end
    dequeue(first)
  end
end

-- serveQueue skips waiters that it can't reach. It wakes each waiter that it grants the lock,
-- except the one with the id self, whose request is being served: it returns the answer to that.
local function serveQueue(self, value)
  local mine
  while true do
    local first = redis.call('ZRANGE', queue, '0', '0')[1]
    if not first or first == yieldMark and yieldLeft() then return mine end
    local request, entry = findRequest(first)
    if not request or entryTime(entry) + absence < now() then
      dequeue(first)
    elseif exhausted() then
      return mine
    elseif not hasRoom(request.mode, value) or grace(request.ttl) > 0 then
      return mine
    else
      -- The wake-up comes first: while the slot is moving, Redis may break off the rest. A waiter
      -- that listens to another server sends its request again, and is served then.
      if first ~= self then wake(request) end
      dequeue(first)
      if first == self or request.blind or isListening(request) then
        local token = reserve(request.tokens)
        local ttl = first == self and request.ttl or math.min(request.ttl, handOverTTL)
        -- The rest of the entry follows its time, the opening brace and the id.
        writeHold(token, now(), first, request.mode, ttl, string.sub(entry, 24 + #first))
        if first == self then mine = grantAnswer(token, othersWait(request.channel)) end
        -- Another waiter sends its request again, which extends the lease. The answer is the grant.
        if request.mode == 'x' then return mine end -- no other hold fits
        value = nil
      end
    end
  end
end
