-- Ends a hold by force, and hints that to its holder.
--
-- KEYS      lock, grants, queue
-- ARGV      id, and the same without quotes: if another library holds the lock, that is the lock's
--           value
-- Provides  breakHold(id, raw)
-- Answer    o, l if that hold does not exist, or k KIND if Redisson has the lock

-- findKept finds what MinHold keeps. It returns the grant and, if that is in the hash grants, its
-- field.
local function findKept(value, id)
  local field = isMulti(value) and 'kept:' .. id
  local entry = field and redis.call('HGET', grants, field)
  if field and (not entry or entryTime(entry) <= now()) then return end
  local json, kept = entry and entryJSON(entry) or value, keptJSON(grantHead(id))
  if string.sub(json, 1, #kept) == kept then return json, field end
end

local function breakHold(id, raw)
  local value, keyType = lockValue()
  if keyType == 'hash' and redis.call('HGET', lock, raw) then
    return 'k a hash, as of Redisson: end that by forceUnlock of that library, or by DEL'
  end
  if value and value == raw and not parseGrant(value) and not isMulti(value) then
    redis.call('DEL', lock)
    serveQueue()
    return 'o'
  end
  local json, multi = findGrant(id, value)
  local field = multi and id
  if not json and value then json, field = findKept(value, id) end
  if not json then return answerLost() end
  local grant = parseGrant(json)
  if grant then hint(grant, 'b') end
  return removeHold(id, json, field)
end
