-- Acquires a lock that is not free, or puts the request into the queue.
--
-- KEYS      lock, grants, queue
-- ARGV      those of acquire.lua
-- Provides  acquireHeld(id, mode, ttl, tokens, waits, rest)
-- Answer    g, q, n, h, e or k, see batch.lua

-- reacquire answers a request that was granted before: the answer was lost, or a release has handed
-- the lock over. It returns nil if there is no such grant.
local function reacquire(id, ttl, value)
  local json, expiry = findGrant(id, value)
  if not json then return end
  extendGrant(id, json, expiry, ttl)
  if isLong(ttl) then rare().addLongLease(id, ttl) end
  return grantAnswerOf(json)
end

-- timeLeft returns for how many ms the present holders keep a request of this mode out; -1 if they
-- have no end, and -2 if there are none.
local function timeLeft(value, mode)
  if value and isMulti(value) then return rare().timeLeftBeside(mode, value) end
  return not value and yieldLeft() or redis.call('PTTL', lock)
end

local function isQueued(member) return redis.call('ZSCORE', queue, member) end

-- answerGrace lets a waiter keep its place. Without memory for that, the answer is still right.
local function answerGrace(wait, id, member)
  if isQueued(member) then pcall(enqueue, id, member) end
  return 'e ' .. wait
end

local function acquireHeld(id, mode, ttl, tokens, waits, rest)
  local value, keyType = lockValue()
  local member = id .. ',' .. rest
  local answer = value and reacquire(id, ttl, value)
  if answer then return answer end -- also in the grace period: it is held already
  if value == nil then return 'k a ' .. keyType end
  if not value or isMulti(value) then -- otherwise no request is granted in any case
    local wait = grace(ttl)
    if wait > 0 then
      if value and waits == '0' and not hasRoom(mode, value) then
        return 'h ' .. timeLeft(value, mode)
      end
      return answerGrace(wait, id, member)
    end
    if not nextToken() then rare().refuse() end
    if value and rare().areOver(mode, value) then value = false end
    answer = serveQueue(member, value)
    if answer then return answer end
    value = lockValue()
  end
  if waits == '2' and not isQueued(member) then return 'n' end
  -- An exclusive hold conflicts with a semaphore only.
  local kind = value and (isMulti(value) or tonumber(mode)) and rare().conflictingKind(value, mode)
  -- A request that is queued waits on if a client of another library takes the lock, which is then
  -- of the other kind.
  if kind and not isQueued(member) then return 'k ' .. kind end
  if hasRoom(mode, value) and redis.call('EXISTS', queue) == 0 then
    return grantAnswer(writeHold(tokens, id, mode, ttl, rest))
  end
  local left = timeLeft(value, mode)
  if left == -2 then -- the head of the queue is in its own grace period
    return answerGrace(grace(parseRequest(firstWaiter()).ttl), id, member)
  end
  if waits == '0' then return 'h ' .. left end
  local new, alone = enqueue(id, member)
  local first = alone or firstWaiter() == member
  local grant = value and not isMulti(value) and parseGrant(value)
  local isForeign = grant == nil
  if value and not isForeign then -- also with a heartbeat: a message may have been lost
    if not grant then -- there may be many sharers, so the first waiter's heartbeats have to do
      if new or first then rare().hintSharers() end
    elseif not isOf(grant.channel, member) then
      hint(grant, 'w')
    end
  end
  return string.format('q %d %d', left, first and (isForeign and 2 or 1) or 0)
end
