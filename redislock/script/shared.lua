-- Looks for room in shared locks and semaphores, and writes their holds. The modes are x,
-- exclusive; s, shared; and a number, the size of a semaphore.
--
-- KEYS[1]   the server's memory, see memory.lua
-- KEYS      lock, grants
-- Expects   all files before rare.lua
-- Provides  removeEnded()                removes the holds that are over
--           areOver(mode, value)         reports whether that frees the lock, for another mode
--           timeLeftBeside(mode, value)  for how many ms the holds keep out a request of this mode
--           hasRoomBeside(mode, value)   reports whether a hold fits beside those of the value
--           writeShared(...)             writes a hold that is not exclusive, for writeHold
--           hintSharers(channel)         tells the holders that this channel's process waits
--           conflictingKind(value, mode) the kind of lock that the name is in use as, if the mode
--                                        asks for another one
--           refuse()                     raises an error because there are no more tokens

-- valueOf returns the value of the lock's key while several hold the lock in this mode.
local function valueOf(mode)
  return mode == 's' and 'snib:shared' or 'snib:slots:' .. mode
end

local function kindOf(mode)
  return string.find(mode, '^%d') and 'a semaphore of ' .. mode or 'a lock'
end

local function kindOfValue(value)
  return kindOf(string.match(value, '^snib:slots:(%d+)$') or 'x')
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

local function areOver(mode, value) return value ~= valueOf(mode) and removeEnded() == 0 end

local function hasRoomBeside(mode, value)
  if value ~= valueOf(mode) then return areOver(mode, value) end
  return mode == 's' or redis.call('HLEN', grants) < tonumber(mode)
    or removeEnded() < tonumber(mode)
end

local function timeLeftBeside(mode, value)
  local _, first, final = removeEnded()
  return math.ceil(((value == valueOf(mode) and first or final) - now()) / 1000)
end

-- writeShared writes a hold of a shared lock or semaphore that ends in ttl ms.
local function writeShared(id, mode, ttl, json)
  if redis.call('SET', lock, valueOf(mode), 'PX', ttl, 'NX') then redis.call('DEL', grants) end
  redis.call('HSET', grants, id, newEntry(now() + ttl * 1000, json))
  extendTo(lock, ttl)
  extendTo(grants, ttl)
end

local function hintSharers(channel)
  for _, entry in ipairs(redis.call('HVALS', grants)) do
    local one = parseGrant(entryJSON(entry))
    if one and one.channel ~= channel then hint(one, 'w') end
  end
end

local function conflictingKind(value, mode)
  local kind = value and kindOfValue(value)
  if not value then
    local first = firstWaiter()
    local request = first and parseRequest(first)
    kind = request and kindOf(request.mode)
  end
  if kind and kind ~= kindOf(mode) then return kind end
end

local function refuse()
  error('the last fencing token, field t of ' .. KEYS[1] .. ', is ' .. memory()[1]
    .. ', above which none can be counted', 0)
end
