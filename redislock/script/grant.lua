-- Writes and finds grants. A grant is a JSON object: the id of its request, the token, the time of
-- the grant, and what the request says of itself: rest, an object without its opening brace. All
-- ids are in JSON, with their quotes, so a grant is found by how it begins. It is the value of the
-- lock's key if it is exclusive. The grants of a shared lock or semaphore are in the hash grants,
-- by id, each after its end.
--
-- KEYS      lock, grants
-- ARGV      not used
-- Expects   now, extendTo, lock, grants; mode.lua and entry.lua
-- Provides  grantJSON(id, token, since, rest)  a grant as text
--           keptJSON(json)                     what becomes of it while MinHold keeps the lock: no
--                                              request finds it any more, except to break it
--           grantHead(id)                      how a grant with this id begins
--           numberIn(json, name)               a number of a grant: its ttl, minhold or since
--           findGrant(id, value)               the grant as text, and its end if others may hold
--                                              the lock, too; nil if there is no such grant. The
--                                              value is that of the lock's key, or nil if it is
--                                              not known
--           extendGrant(id, json, expiry, ttl) makes a grant that was found last for at least ttl
--                                              ms. It writes in any case, so that WAITAOF waits
-- Answer    none: the files after this one answer

local function grantJSON(id, token, since, rest)
  return string.format('{"snib":2,"id":%s,"token":%d,"since":%d,', id, token, since) .. rest
end

local function keptJSON(json) return '{"kept":true,' .. string.sub(json, 2) end

local function grantHead(id) return '{"snib":2,"id":' .. id .. ',' end

-- numberIn finds the field of the grant: in the texts of others, JSON escapes the quotes. To parse
-- the whole grant would take longer than all else that a release does.
local function numberIn(json, name)
  local _, before = string.find(json, '"' .. name .. '":', 1, true)
  return before and tonumber(string.match(json, '^%d+', before + 1)) or 0
end

local function isGrant(json, id) return string.find(json, grantHead(id), 1, true) == 1 end

local function findGrant(id, value)
  if value == nil then value = lockValue() end
  if not value then return end
  if not isMulti(value) then return isGrant(value, id) and value or nil end
  local entry = redis.call('HGET', grants, id)
  if not entry or entryTime(entry) <= now() then return end
  local json = entryJSON(entry)
  if isGrant(json, id) then return json, entryTime(entry) end
end

local function extendGrant(id, json, expiry, ttl)
  if expiry then
    redis.call('HSET', grants, id, newEntry(math.max(expiry, now() + ttl * 1000), json))
    extendTo(grants, ttl)
  end
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), ttl))
end
