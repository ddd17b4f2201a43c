-- Takes back a request: its place in the queue, or, if its own process has given it up, the hold
-- that it was granted.
--
-- KEYS      lock, grants, queue, requests
-- ARGV      id; 1 if another process withdraws the request, which ends no hold
-- Provides  withdraw(id, byOther)
-- Answer    o

local function withdraw(id, byOther)
  local first = firstWaiter() == id
  dequeue(id)
  local json, multi = findGrant(id)
  if json and not byOther then return removeHold(id, json, multi and id) end
  serveQueue() -- waiters behind the request may fit now
  if first then wakeFirst() end
  return 'o'
end
