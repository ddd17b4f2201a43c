-- Takes back a request that its process has given up: the place in the queue, or the hold if it
-- was granted. A later request of the same owner is left alone.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, the channel of the process, the id of the request
-- Expects   all files before this one
-- Provides  withdraw(owner, process, id)
-- Answer    o

local function withdraw(owner, process, id)
  local function isGivenUp(request)
    return request and (request.process or request.channel) == process and request.id == id
  end
  local first = firstWaiter() == owner
  if isGivenUp((findRequest(owner))) then dequeue(owner) end
  local value = lockValue()
  if value and isMulti(value) then
    local entry = redis.call('HGET', record, owner)
    local hold = entry and entryTime(entry) > now and parseHold(entryJSON(entry))
    if isGivenUp(hold) then
      removeLongLease(hold)
      return removeShared(owner)
    end
  elseif value == owner then
    local hold = exclusiveHold()
    if isGivenUp(hold) then
      removeLongLease(hold)
      redis.call('DEL', lock, record)
    end
  end
  serveQueue() -- waiters behind the request may fit now
  if first then wakeFirst() end
  return 'o'
end
