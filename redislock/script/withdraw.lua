-- Takes back a request that its process has given up: the place in the queue, or the hold if it
-- was granted.
--
-- KEYS      lock, grants, queue, requests
-- ARGV      id
-- Expects   all files before this one
-- Provides  withdraw(id)
-- Answer    o

local function withdraw(id)
  local first = firstWaiter() == id
  dequeue(id)
  local json, multi = findGrant(id)
  if json then return removeHold(id, parseGrant(json), multi and id) end
  serveQueue() -- waiters behind the request may fit now
  if first then wakeFirst() end
  return 'o'
end
