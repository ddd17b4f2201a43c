-- Releases a hold.
--
-- KEYS[1]   the server's memory, see memory.lua
-- KEYS      lock, grants, queue, requests
-- ARGV[3]   1 with DurableAOF, see full.lua
-- ARGV      id, how often to leave the lock free for other libraries, in ms, or 0 (YieldToForeign)
-- Expects   all files before this one
-- Provides  wakeFirst()         makes the head of the queue send its request again
--           removeHold(id, grant, field, yieldEvery)
--                               removes a hold, and serves the queue. The field is that of the
--                               hash grants if others may hold the lock, too
--           answerLost()        serves the queue and returns the answer l
--           release(id, yieldEvery)
-- Answer    o or l, see full.lua

-- wakeFirst is called after a change of the time for which the head of the queue has to wait.
local function wakeFirst()
  local first = firstWaiter()
  local request = first and findRequest(first)
  if request then wake(request) end
end

-- keepHold keeps a released hold until it has lasted for its MinHold. It returns false if that time
-- is over. If multi is set, others may hold the lock, too.
local function keepHold(id, json, grant, multi)
  local expiry = grant.since + grant.minhold * 1000
  if grant.minhold == 0 or expiry <= now then return false end
  local ms = math.ceil((expiry - now) / 1000)
  if multi then
    redis.call('HDEL', grants, id)
    redis.call('HSET', grants, 'kept:' .. id, newEntry(expiry, keptJSON(json)))
    local _, _, final = removeEnded()
    ms = math.ceil((final - now) / 1000)
    redis.call('PEXPIRE', lock, ms)
    redis.call('PEXPIRE', grants, ms) -- which may be sooner than the lease would have ended
  else
    redis.call('SET', lock, keptJSON(json), 'PX', ms)
  end
  wakeFirst()
  return true
end

-- removeHold is given yieldEvery only if the holder itself releases.
local function removeHold(id, grant, field, yieldEvery)
  removeLongLease(id, grant)
  if field then
    redis.call('HDEL', grants, field)
    if redis.call('EXISTS', grants) == 1 then
      serveQueue()
      return 'o'
    end
  end
  redis.call('DEL', lock)
  yieldIfDue(grant, yieldEvery)
  serveQueue(nil, false)
  return 'o'
end

-- answerLost is for a request whose hold does not exist. An earlier try of the same request may
-- have ended the hold and then been broken off by Redis, because its slot is moving, before it
-- served the queue. With DurableAOF it also writes something: WAITAOF waits for what this
-- connection has written, and so for all that was written before that.
local function answerLost()
  if ARGV[3] == '1' and meta[1] then redis.call('HSET', KEYS[1], 't', meta[1]) end
  serveQueue()
  return 'l'
end

local function release(id, yieldEvery)
  local json, multi = findGrant(id)
  if not json then return answerLost() end
  local grant = parseGrant(json)
  if grant and keepHold(id, json, grant, multi) then
    removeLongLease(id, grant)
    return 'o'
  end
  return removeHold(id, grant, multi and id, yieldEvery)
end
