-- Reads the value of the lock's key, and finds grants. The value is the grant if the hold is
-- exclusive (grant.lua), and the same for all holders of a shared lock or semaphore (shared.lua).
--
-- KEYS      lock, grants
-- Provides  isMulti(value)                     reports whether several may hold the lock
--           lockValue()                        the present value
--           findGrant(id, value)               the grant as text, and its end if others may hold
--                                              the lock, too; nil if there is no such grant. The
--                                              value is that of the lock's key, or nil if it is
--                                              not known
--           extendGrant(id, json, expiry, ttl) makes a grant that was found last for at least ttl
--                                              ms. It writes in any case, so that WAITAOF waits.
--                                              PEXPIRE comes first: a server whose memory is full
--                                              executes it, and then all that the script writes

local function isMulti(value)
  return value == 'snib:shared' or string.sub(value, 1, 11) == 'snib:slots:'
end

-- lockValue returns false if the key does not exist, and nil and the key's type if it is not a
-- string. Any other error says nothing about the lock, and must not pass for the end of a hold.
local function lockValue()
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'table' then return value end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then error(value) end
  return nil, redis.call('TYPE', lock).ok
end

local function findGrant(id, value)
  if value == nil then value = lockValue() end
  local json, expiry = value, nil
  if value and isMulti(value) then -- grants is nil if renew.lua has only locks
    local entry = grants and redis.call('HGET', grants, id)
    if not entry or entryTime(entry) <= now() then return end
    json, expiry = entryJSON(entry), entryTime(entry)
  end
  if json and string.find(json, grantHead(id), 1, true) == 1 then return json, expiry end
end

local function extendGrant(id, json, expiry, ttl)
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl))
  if expiry then
    redis.call('HSET', grants, id, newEntry(math.max(expiry, now() + ttl * 1000), json))
    extendTo(grants, ttl)
  end
end
