-- Keeps the queue of a lock, and serves it in order of arrival. Numbers in commands are texts where
-- they can be: Redis converts others by printf.
--
-- KEYS      queue, requests
-- Expects   now, extendTo, grace, nextToken, writeHold, queue, requests; entry.lua, found.lua and
--           hint.lua; rare().hasRoomBeside
-- Provides  absence, handOverTTL
--           enqueue(id, rest)     adds a waiter unless it is there, and notes that it lives. It
--                                 reports whether the waiter is new, and whether it is alone
--           dequeue(id)           removes a waiter
--           firstWaiter()         the id at the head of the queue, or nil
--           yieldLeft()           for how many ms waiters must leave the lock free, or nil
--           othersWait(channel)   reports whether another process than the channel's waits
--           grantAnswer(token, channel)  answers a granted request; no channel if nobody waits
--           hasRoom(mode, value)  reports whether a hold of this mode fits beside the value of the
--                                 lock's key, which is nil if it is not known
--           serveQueue(self, value, first)  grants the lock to waiters as long as that is possible.
--                                 First is the head of the queue, or nil if it is not known

-- absence is after how long a waiter is removed that has not sent its request again, in
-- microseconds; waiters send it three times as often. handOverTTL is how long a lock is held for
-- a waiter that was handed it and has not sent its request again, in milliseconds.
local absence, handOverTTL = 15000000, 3000

-- enqueue makes the keys last for twice as long as a waiter that is silent. They are extended once
-- in a third of its time: by each waiter behind a tail that came in the third before.
local function enqueue(id, rest)
  local tail = tonumber(redis.call('ZREVRANGE', queue, '0', '0', 'WITHSCORES')[2])
  local place = math.max(now(), tail and tail + 1 or 0)
  local new = redis.call('ZADD', queue, 'NX', string.format('%d', place), id) == 1
  redis.call('HSET', requests, id, newEntry(now(), '{"id":' .. id .. ',' .. rest))
  local third = absence / 3
  if not tail or math.floor(tail / third) ~= math.floor(now() / third) then
    redis.call('PEXPIRE', queue, absence / 500)
    redis.call('PEXPIRE', requests, absence / 500)
  end
  return new, not tail
end

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

-- othersWait looks at the first 32 waiters. If these are all of the channel's process, and more
-- may follow, it returns true without looking at them.
local function othersWait(channel)
  local waiters = redis.call('ZRANGE', queue, '0', '31')
  for i = 1, #waiters do
    local request = findRequest(waiters[i])
    if request and request.channel ~= channel then return true end
  end
  return #waiters == 32
end

local function grantAnswer(token, channel)
  return string.format('g %d %d', token, channel and othersWait(channel) and 1 or 0)
end

local function hasRoom(mode, value)
  if value == nil then value = lockValue() end
  if not value then return value == false end
  return isMulti(value) and rare().hasRoomBeside(mode, value)
end

-- serveQueue skips waiters that it can't reach. It wakes each waiter that it grants the lock,
-- except the one with the id self, whose request is being served: it returns the answer to that.
local function serveQueue(self, value, first)
  local mine
  while true do
    first = first or redis.call('ZRANGE', queue, '0', '0')[1]
    if not first or first == yieldMark and yieldLeft() then return mine end
    local request, entry = findRequest(first)
    if not request or entryTime(entry) + absence < now() then
      dequeue(first)
    elseif not nextToken() or not hasRoom(request.mode, value) or grace(request.ttl) > 0 then
      return mine
    else
      -- The wake-up comes first: while the slot is moving, Redis may break off the rest. A waiter
      -- that listens to another server sends its request again, and is served then.
      local hears = first == self or wake(request)
      dequeue(first)
      if hears then
        local token = nextToken()
        local ttl = first == self and request.ttl or math.min(request.ttl, handOverTTL)
        -- The rest of the entry follows its time, the opening brace and the id.
        writeHold(token, request.tokens, first, request.mode, ttl, string.sub(entry, 24 + #first))
        if first == self then mine = grantAnswer(token, request.channel) end
        -- Another waiter sends its request again, which extends the lease. The answer is the grant.
        if request.mode == 'x' then return mine end -- no other hold fits
        value = nil
      end
    end
    first = nil
  end
end
