-- Ends a hold by force, and hints that to its holder.
--
-- KEYS      lock, grants, queue
-- ARGV      id, and the same without quotes: if another library holds the lock, that is the lock's
--           value, or the field of a hash of Redisson
-- Provides  breakHold(id, raw)
-- Answer    o, or l if that hold does not exist

-- breakRedisson does what Redisson does when a hold of its ends, and wakes its waiters.
local function breakRedisson(field)
  if not string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+')
    or redis.call('HDEL', lock, field) == 0 then return answerLost() end
  local mode = redis.call('HGET', lock, 'mode')
  local wasWriter = string.sub(field, -6) == ':write'
  if redis.call('HLEN', lock) <= (mode and 1 or 0) then
    redis.call('DEL', lock)
  elseif wasWriter then -- the thread reads, too
    redis.call('HSET', lock, 'mode', 'read')
  end
  local channel = redissonName('redisson_lock__channel', lock)
  local head = redis.pcall('LINDEX', redissonName('redisson_lock_queue', lock), 0)
  if mode then
    redis.pcall('PUBLISH', redissonName('redisson_rwlock', lock), wasWriter and 1 or 0)
  else
    redis.pcall('PUBLISH', type(head) == 'string' and channel .. ':' .. head or channel, 0)
  end
  serveQueue()
  return 'o'
end

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
  if keyType == 'hash' then return breakRedisson(raw) end
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
