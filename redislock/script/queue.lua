-- Serves the queue of a lock in order of arrival.
--
-- KEYS      queue, requests
-- ARGV      not used
-- Expects   now, absence, grace, queue, requests; token.lua, entry.lua, hint.lua and hold.lua
-- Provides  dequeue(owner)    removes a waiter
--           serveQueue(self)  grants the lock to waiters for as long as that is possible
-- Answer    none: the files after this one answer

local function dequeue(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', requests, owner)
end

-- serveQueue skips waiters that it can't reach. It wakes each waiter that it grants the lock,
-- except the owner self, whose request is being served: it returns the answer to that one.
local function serveQueue(self)
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then return end
    local request, entry = findRequest(first)
    if not request or entryTime(entry) + absence < now then
      dequeue(first)
    elseif exhausted() then
      return
    elseif not hasRoom(request.mode) or grace(request.ttl) > 0 then
      return
    else
      -- The wake-up comes first: while the slot is moving, Redis may break off the rest. A waiter
      -- that listens to another server sends its request again, and is served then.
      if first ~= self then wake(request) end
      dequeue(first)
      if first == self or request.blind or isListening(request) then
        local token = reserve(request.tokens)
        local answer = grantAnswer(token, request.tokens, othersWait(request.channel))
        writeHold(token, now, first, request.mode, request.ttl, string.sub(entry, 18))
        if first == self then return answer end
        -- The waiter sends its request again, and the answer is the grant that it has.
        if request.mode == 'x' then return end -- no other hold fits
      end
    end
  end
end
