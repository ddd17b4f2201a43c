-- Releases a hold that is not there, that MinHold keeps, or that others share.
--
-- KEYS[1]   the server's memory, see memory.lua
-- KEYS      lock, grants, queue
-- ARGV[3]   1 with DurableAOF, see batch.lua
-- ARGV      those of release.lua
-- Provides  keptJSON(json)  what becomes of a grant while MinHold keeps the lock: no request finds
--                           it any more, except to break it
--           removeLongLease(id, json)  removes the long lease of a hold that has ended
--           wakeFirst()     makes the head of the queue send its request again
--           removeHold(id, json, field, yieldEvery)  removes a hold, and serves the queue. The
--                           field is that of the hash grants if others may hold the lock, too
--           answerLost()        serves the queue and returns the answer l
--           releaseHold(id, yieldEvery)
-- Answer    o or l, see batch.lua

local function keptJSON(json) return '{"kept":true,' .. string.sub(json, 2) end

local function removeLongLease(id, json)
  local long = numberIn(json, 'ttl')
  if not isLong(long) then return end
  for _, ttl in ipairs({long, handOverTTL}) do
    redis.call('ZREM', KEYS[2], string.format('%d %s %s', ttl, id, lock))
  end
end

-- wakeFirst is called after a change of the time for which the head of the queue has to wait.
local function wakeFirst()
  local first = firstWaiter()
  local request = first and parseRequest(first)
  if request then wake(request) end
end

-- endWithLast makes the keys end with the last of the holds that share the lock, which may be
-- sooner than before: clients of other libraries see no more than the key.
local function endWithLast()
  local _, _, final = removeEnded()
  for _, key in ipairs({lock, grants}) do
    redis.call('PEXPIRE', key, math.ceil((final - now()) / 1000))
  end
end

-- keepHold keeps a released hold until it has lasted for its MinHold. It returns false if that time
-- is over. If multi is set, others may hold the lock, too.
local function keepHold(id, json, multi)
  local minHold = numberIn(json, 'minhold')
  if minHold == 0 then return false end
  local expiry = numberIn(json, 'since') + minHold * 1000
  if expiry <= now() then return false end
  if multi then
    -- Without fields there would be no key, which a moving slot then misses: so HSET comes
    -- before HDEL, and after PEXPIRE, see extendGrant. The key may be in its last millisecond.
    local left = math.ceil((expiry - now()) / 1000)
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), left))
    redis.call('HSET', grants, 'kept:' .. id, newEntry(expiry, keptJSON(json)))
    redis.call('HDEL', grants, id)
    endWithLast()
  else
    redis.call('PEXPIRE', lock, math.ceil((expiry - now()) / 1000)) -- first: see extendGrant
    redis.call('SET', lock, keptJSON(json), 'KEEPTTL')
  end
  wakeFirst()
  return true
end

local function removeHold(id, json, field, yieldEvery)
  if field then
    redis.call('HDEL', grants, field)
    if redis.call('EXISTS', grants) == 1 then
      removeLongLease(id, json)
      -- It reads all holds, so it is left out where the key outlives them by the floor at most.
      if numberIn(json, 'ttl') > (floor or 30000) then endWithLast() end
      serveQueue()
      return 'o'
    end
  end
  return removeExclusive(id, json, yieldEvery)
end

-- answerLost is for a request whose hold does not exist. An earlier try of the same request may
-- have ended the hold and then been broken off by Redis, because its slot is moving, before it
-- served the queue. With DurableAOF it also writes something: WAITAOF waits for what this
-- connection has written, and so for all that was written before that.
local function answerLost()
  local token = ARGV[3] == '1' and memory()[1]
  if token then redis.call('HSET', KEYS[1], 't', token) end
  serveQueue()
  return 'l'
end

local function releaseHold(id, yieldEvery)
  local json, multi = findGrant(id)
  if not json then return answerLost() end
  if keepHold(id, json, multi) then
    removeLongLease(id, json)
    return 'o'
  end
  return removeHold(id, json, multi and id, yieldEvery)
end
