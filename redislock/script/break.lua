-- Ends a hold by force, and hints that to its holder.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token; the token is 0 if another library holds the lock. The owner of a hold of
--           Redisson is the field of its hash
-- Expects   all files before this one
-- Provides  breakHold(owner, token)
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

local function breakHold(owner, token)
  local value, keyType = lockValue()
  if keyType == 'hash' and token == '0' then return breakRedisson(owner) end
  if value and isMulti(value) then
    for _, field in ipairs({owner, 'snib:kept:' .. owner}) do
      local entry = redis.call('HGET', record, field)
      local hold = entry and entryTime(entry) > now and parseHold(entryJSON(entry))
      if hold and string.format('%d', hold.token) == token then
        removeLongLease(hold)
        hint(hold, 'b')
        return removeShared(field)
      end
    end
    return answerLost()
  end
  local hold = exclusiveHold()
  local ours = hold and hold.owner == owner and (value == owner or value == 'snib:kept')
  if (ours and string.format('%d', hold.token) or value == owner and '0') ~= token then
    return answerLost()
  end
  redis.call('DEL', lock, record)
  if ours then
    removeLongLease(hold)
    hint(hold, 'b')
  end
  serveQueue()
  return 'o'
end
