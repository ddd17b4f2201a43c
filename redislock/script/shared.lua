-- Looks for room in shared locks and semaphores, and writes their holds. The modes are x,
-- exclusive; s, shared; and a number, the size of a semaphore.
--
-- KEYS[1]   the server's memory, see memory.lua
-- KEYS      lock, grants
-- Provides  removeEnded()                removes the holds that are over
--           areOver(mode, value)         reports whether that frees the lock, for another mode
--           timeLeftBeside(mode, value)  for how many ms the holds keep out a request of this mode
--           hasRoomBeside(mode, value)   reports whether a hold fits beside those of the value
--           writeShared(...)             writes a hold that is not exclusive, for writeHold
--           hintSharers()                tells the holders that another process waits
--           conflictingKind(value, mode) the kind of lock of the value, if the mode asks for
--                                        another one
--           refuse()                     raises an error because there are no more tokens

-- valueOf returns the value of the lock's key while several hold the lock in this mode. The number
-- of a semaphore is the least that one of its holders asked for, or less if that one has gone.
local function valueOf(mode)
  return mode == 's' and 'snib:shared' or 'snib:slots:' .. mode
end

local function kindOf(mode)
  return string.find(mode, '^%d') and 'a semaphore' or 'a lock'
end

local function slotsOf(value) return tonumber(string.match(value, '^snib:slots:(%d+)$')) end

-- shares reports whether holds of this mode may be beside those of the value.
local function shares(mode, value)
  return mode == 's' and value == 'snib:shared' or tonumber(mode) and slotsOf(value)
end

-- removeEnded returns how many holds are left, when the first and the last of them end, and the
-- least number of slots that one of them asked for.
local function removeEnded()
  local all, left, first, final = redis.call('HGETALL', grants), 0, 1e16, 0
  local least = 2147483647
  for i = 1, #all, 2 do
    local expiry = entryTime(all[i + 1])
    if expiry <= now() then
      redis.call('HDEL', grants, all[i])
    else
      left, first, final = left + 1, math.min(first, expiry), math.max(final, expiry)
      least = math.min(least, tonumber(string.match(all[i + 1], '"mode":"(%d+)"')) or least)
    end
  end
  if left == 0 then redis.call('DEL', lock, grants) end
  return left, first, final, least
end

local function areOver(mode, value) return not shares(mode, value) and removeEnded() == 0 end

local function hasRoomBeside(mode, value)
  if not shares(mode, value) then return areOver(mode, value) end
  local n, noted = tonumber(mode), slotsOf(value)
  if mode == 's' or redis.call('HLEN', grants) < math.min(n, noted) then return true end
  local left, _, _, least = removeEnded()
  if left > 0 and least > noted then redis.call('SET', lock, valueOf(least), 'KEEPTTL') end
  return left < math.min(n, least)
end

local function timeLeftBeside(mode, value)
  local left, first, final = removeEnded()
  if left == 0 then return -2 end
  return math.ceil(((shares(mode, value) and first or final) - now()) / 1000)
end

-- writeShared writes a hold of a shared lock or semaphore that ends in ttl ms.
local function writeShared(id, mode, ttl, json)
  if redis.call('SET', lock, valueOf(mode), 'PX', ttl, 'NX') then
    redis.call('DEL', grants)
  elseif mode ~= 's' and tonumber(mode) < slotsOf(lockValue()) then
    redis.call('SET', lock, valueOf(mode), 'KEEPTTL')
  end
  redis.call('HSET', grants, id, newEntry(now() + ttl * 1000, json))
  extendTo(lock, ttl)
  extendTo(grants, ttl)
end

local function hintSharers()
  local wait = {} -- by channel, of which there is one for each process
  for _, entry in ipairs(redis.call('HVALS', grants)) do
    local one = parseGrant(entryJSON(entry))
    local channel = one and one.channel
    if one and wait[channel] == nil then wait[channel] = othersWait(channel) or false end
    if one and wait[channel] then hint(one, 'w') end
  end
end

local function conflictingKind(value, mode)
  local kind = kindOf(slotsOf(value) and '1' or 'x')
  if kind ~= kindOf(mode) then return kind end
end

local function refuse()
  error('the last fencing token, field t of ' .. KEYS[1] .. ', is ' .. memory()[1]
    .. ', above which none can be counted', 0)
end
