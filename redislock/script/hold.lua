-- Grants and ends holds.
--
-- KEYS[2]   the long leases, see longlease.lua
-- KEYS      lock, grants, queue
-- ARGV      not used
-- Expects   now, floor, handOverTTL, addLongLease, extendTo, lock, grants, queue; mode.lua,
--           entry.lua, grant.lua
-- Provides  removeLongLease(id, json)  removes the lease of a hold that has ended
--           removeEnded()             removes the ended holds of a shared lock or semaphore
--           hasRoom(mode, value)      reports whether another hold of this mode fits. The value is
--                                     that of the lock's key, or nil if it is not known
--           othersWait(channel)       reports whether another process than the channel's waits
--           writeHold(...)            writes a hold after hasRoom
-- Answer    none: the files after this one answer

local function removeLongLease(id, json)
  local long = floor and numberIn(json, 'ttl')
  if long and long > floor then
    for _, ttl in ipairs({long, handOverTTL}) do
      redis.call('ZREM', KEYS[2], string.format('%d %s %s', ttl, id, lock))
    end
  end
end

-- removeEnded returns how many holds are left, and when the first and the last of them end.
local function removeEnded()
  local all, left, first, final = redis.call('HGETALL', grants), 0, 1e16, 0
  for i = 1, #all, 2 do
    local expiry = entryTime(all[i + 1])
    if expiry <= now() then
      redis.call('HDEL', grants, all[i])
    else
      left, first, final = left + 1, math.min(first, expiry), math.max(final, expiry)
    end
  end
  if left == 0 then redis.call('DEL', lock, grants) end
  return left, first, final
end

local function hasRoom(mode, value)
  if value == nil then value = lockValue() end
  if not value then return value == false end
  if mode == 'x' or value ~= valueOf(mode) then return isMulti(value) and removeEnded() == 0 end
  return mode == 's' or redis.call('HLEN', grants) < tonumber(mode)
    or removeEnded() < tonumber(mode)
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

-- writeHold writes a hold that ends in ttl ms.
local function writeHold(token, since, id, mode, ttl, rest)
  addLongLease(lock, id, ttl)
  local json = grantJSON(id, token, since, rest)
  if mode == 'x' then return redis.call('SET', lock, json, 'PX', ttl) end
  if redis.call('SET', lock, valueOf(mode), 'PX', ttl, 'NX') then redis.call('DEL', grants) end
  redis.call('HSET', grants, id, newEntry(now() + ttl * 1000, json))
  extendTo(lock, ttl)
  extendTo(grants, ttl)
end
