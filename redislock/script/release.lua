-- Releases a hold.
--
-- KEYS[1]   the server's memory, see memory.lua
-- KEYS      lock, record, queue, requests
-- ARGV[3]   1 with DurableAOF, see full.lua
-- ARGV      owner, token, the time in ms for which the hold must have lasted (MinHold), how often
--           to leave the lock free for other libraries, in ms, or 0 (YieldToForeign)
-- Expects   all files before this one
-- Provides  wakeFirst()             makes the head of the queue send its request again
--           removeShared(field)     removes one holder of a shared lock or semaphore
--           answerLost()            serves the queue and returns the answer l
--           findHold(owner, token)  finds a hold
--           release(owner, token, minHold, yieldEvery)
-- Answer    o or l, see full.lua

-- wakeFirst is called after a change of the time for which the head of the queue has to wait.
local function wakeFirst()
  local first = firstWaiter()
  local request = first and findRequest(first)
  if request then wake(request) end
end

-- keepHold keeps a released hold until it has lasted for minHold ms. It returns false if that
-- time is over. Json is the hold's record. If shared is set, others may hold the lock too, and
-- the record is the owner's entry.
local function keepHold(owner, json, minHold, shared)
  local expiry = parseHold(json).since + minHold * 1000
  if expiry <= now then return false end
  local ms = math.ceil((expiry - now) / 1000)
  if shared then
    redis.call('HDEL', record, owner)
    redis.call('HSET', record, 'snib:kept:' .. owner, newEntry(expiry, json))
    local _, _, final = removeEnded()
    ms = math.ceil((final - now) / 1000)
    redis.call('PEXPIRE', lock, ms)
  else
    redis.call('SET', lock, 'snib:kept', 'PX', ms)
  end
  redis.call('PEXPIRE', record, ms) -- which may be sooner than the lease would have ended
  wakeFirst()
  return true
end

-- removeShared is given hold and yieldEvery only if the holder itself releases.
local function removeShared(field, hold, yieldEvery)
  redis.call('HDEL', record, field)
  if redis.call('EXISTS', record) == 0 then
    redis.call('DEL', lock)
    yieldIfDue(hold, yieldEvery)
  end
  serveQueue()
  return 'o'
end

-- findHold reports whether the hold with this token still exists. It returns the record, if there
-- is one, as text and parsed, and whether others may hold the lock too.
local function findHold(owner, token)
  local value = lockValue()
  if value and isMulti(value) then
    local entry = redis.call('HGET', record, owner)
    local hold = entry and entryTime(entry) > now and parseHold(entryJSON(entry))
    return hold and string.format('%d', hold.token) == token, entry and entryJSON(entry), hold, true
  end
  local hold, json = exclusiveHold()
  if value ~= owner or not hold or hold.owner ~= owner then return value == owner end
  return string.format('%d', hold.token) == token, json, hold, false
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

local function release(owner, token, minHold, yieldEvery)
  local found, json, hold, shared = findHold(owner, token)
  if not found then return answerLost() end
  removeLongLease(hold)
  minHold = tonumber(minHold)
  if minHold > 0 and json and keepHold(owner, json, minHold, shared) then return 'o' end
  if shared then return removeShared(owner, hold, yieldEvery) end
  redis.call('DEL', lock, record)
  yieldIfDue(hold, yieldEvery)
  serveQueue(nil, false)
  return 'o'
end
