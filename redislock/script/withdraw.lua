-- Takes back a request: its place in the queue, or, if its own process has given it up, the hold
-- that it was granted.
--
-- KEYS      lock, grants, queue
-- ARGV      id; the request as for acquire.lua, or an empty text if another process withdraws it,
--           which ends no hold
-- Provides  withdraw(id, rest)
-- Answer    o

-- memberOf finds a waiter by its id.
local function memberOf(id)
  for _, member in ipairs(redis.call('ZRANGE', queue, '0', '-1')) do
    if string.sub(member, 1, #id + 1) == id .. ',' then return member end
  end
end

local function withdraw(id, rest)
  local isOwn = rest ~= ''
  local member = isOwn and id .. ',' .. rest or memberOf(id)
  local first = member and firstWaiter() == member
  if member then dequeue(member, id) end
  local json, multi = findGrant(id)
  if json and isOwn then return removeHold(id, json, multi and id) end
  serveQueue() -- waiters behind the request may fit now
  if first then wakeFirst() end
  return 'o'
end
