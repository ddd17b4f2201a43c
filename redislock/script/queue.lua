-- Keeps the queue of a lock, and serves it in order of arrival. Numbers in commands are texts where
-- they can be: Redis converts others by printf.
--
-- KEYS      queue, a sorted set. A waiter is the member ID,REQUEST, with the time of its arrival
--           as score. After its first heartbeat, the member ID has the time of the last one, plus
--           heartbeats, so that all waiters come before
-- Provides  absence, handOverTTL
--           enqueue(id, member)   adds a waiter unless it is there, and notes that it lives. It
--                                 reports whether the waiter is new, and whether it is alone
--           dequeue(member, id)   removes a waiter, and its heartbeats if its id is known
--           firstWaiter()         the member at the head of the queue, or nil
--           yieldLeft()           for how many ms waiters must leave the lock free, or nil
--           isOf(channel, member) reports whether a waiter is of the channel's process
--           othersWait(channel)   reports whether another process than the channel's waits
--           isAlive(id, place)    reports whether a waiter that came at that time is alive
--           grantAnswer(token, channel)  answers a granted request; no channel if nobody waits
--           grantAnswerOf(json)   answers a request for what is held already
--           hasRoom(mode, value)  reports whether a hold of this mode fits beside the value of the
--                                 lock's key, which is nil if it is not known
--           serveQueue(self, value, head)  grants the lock to waiters as long as that is possible.
--                                 Head is the head of the queue and its time, or nil if these are
--                                 not known

-- absence is after how long a waiter is removed that has not sent its request again, in
-- microseconds; waiters send it three times as often. handOverTTL is how long a lock is held for
-- a waiter that was handed it and has not sent its request again, in milliseconds.
local absence, handOverTTL, heartbeats = 15000000, 3000, '4e15'

-- enqueue makes the key last for twice as long as a waiter that is silent. It is extended once in a
-- third of its time: by each waiter behind a tail that came in the third before.
local function enqueue(id, member)
  local tail = tonumber(redis.call('ZREVRANGEBYSCORE', queue, heartbeats, '-inf', 'WITHSCORES',
    'LIMIT', '0', '1')[2])
  local place = math.max(now(), tail and tail + 1 or 0)
  local new = redis.call('ZADD', queue, 'NX', string.format('%d', place), member) == 1
  if not new then redis.call('ZADD', queue, string.format('%d', now() + heartbeats), id) end
  local third = absence / 3
  if not tail or math.floor(tail / third) ~= math.floor(now() / third) then
    redis.call('PEXPIRE', queue, absence / 500)
  end
  return new, not tail
end

local function dequeue(member, id) redis.call('ZREM', queue, member, id or member) end

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

local function isOf(channel, member)
  return string.find(member, '"channel":"' .. channel .. '"', 1, true)
end

-- othersWait looks at the first 4 members. If these are waiters of the channel's process, others
-- may follow: then it returns true without looking.
local function othersWait(channel)
  local members = redis.call('ZRANGE', queue, '0', '3')
  for i = 1, #members do
    if not isOf(channel, members[i]) and parseRequest(members[i]) then return true end
  end
  return members[4] and isOf(channel, members[4])
end

local function grantAnswer(token, channel)
  return string.format('g %d %d', token, channel and othersWait(channel) and 1 or 0)
end

local function grantAnswerOf(json)
  return grantAnswer(numberIn(json, 'token'), string.match(json, '"channel":"([^"]*)"'))
end

local function hasRoom(mode, value)
  if value == nil then value = lockValue() end
  if not value then return value == false end
  return isMulti(value) and rare().hasRoomBeside(mode, value)
end

-- isAlive goes by the waiter's arrival, or its last heartbeat. A time far ahead does not count: the
-- clock was set back.
local function isAlive(id, place)
  local silence = now() - place
  if silence > absence or silence < -60000000 then
    silence = now() + heartbeats - (redis.call('ZSCORE', queue, id) or 0)
  end
  return silence <= absence and silence >= -60000000
end

-- serveQueue skips waiters that it can't reach. It wakes each waiter that it grants the lock,
-- except the member self, whose request is being served: it returns the answer to that.
local function serveQueue(self, value, head)
  local mine
  while true do
    head = head or redis.call('ZRANGE', queue, '0', '0', 'WITHSCORES')
    local first = head[1]
    if not first or first == yieldMark and yieldLeft() then return mine end
    local request = parseRequest(first)
    if not request or not isAlive(request.id, head[2]) then
      dequeue(first, request and request.id)
    elseif not nextToken() or not hasRoom(request.mode, value) or grace(request.ttl) > 0 then
      return mine
    else
      -- The wake-up comes first: while the slot is moving, Redis may break off the rest. A waiter
      -- that listens to another server sends its request again, and is served then.
      local hears = first == self or wake(request)
      dequeue(first, request.id)
      if hears then
        local ttl = first == self and request.ttl or math.min(request.ttl, handOverTTL)
        local token = writeHold(request.tokens, request.id, request.mode, ttl,
          string.sub(first, #request.id + 2))
        if first == self then mine = grantAnswer(token, request.channel) end
        -- Another waiter sends its request again, which extends the lease. The answer is the grant.
        if request.mode == 'x' then return mine end -- no other hold fits
        value = nil
      end
    end
    head = nil
  end
end
