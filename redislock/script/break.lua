-- Ends a hold by force, and hints that to its holder.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token; the token is 0 if another library holds the lock
-- Expects   all files before this one
-- Provides  breakHold(owner, token)
-- Answer    o, or l if that hold does not exist

local function breakHold(owner, token)
  local value = lockValue()
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
