-- Takes back a request that its process has given up: the place in the queue, or the hold if it
-- was granted. A later attempt of the same id is left alone.
--
-- KEYS      lock, grants, queue, requests
-- ARGV      id, the channel of the process, the number of the attempt
-- Expects   all files before this one
-- Provides  withdraw(id, process, attempt)
-- Answer    o

local function withdraw(id, process, attempt)
  local function isGivenUp(request)
    return request and (request.process or request.channel) == process
      and request.attempt == attempt
  end
  local first = firstWaiter() == id
  if isGivenUp((findRequest(id))) then dequeue(id) end
  local json, multi = findGrant(id, '0')
  local grant = parseGrant(json or '')
  if isGivenUp(grant) then return removeHold(id, grant, multi) end
  serveQueue() -- waiters behind the request may fit now
  if first then wakeFirst() end
  return 'o'
end
