-- Hands the lock that free.lua has found to be the owner's over to the head of the queue, if that
-- is a waiter for an exclusive lock whose process listens. It does what release and serveQueue do
-- in this case, and leaves every other one to the full script.
--
-- KEYS[1]  to KEYS[6]: the server's memory, the long leases, lock, record, queue, requests
-- ARGV[1]  to ARGV[6]: see full.lua
-- ARGV[9]  0, or how often to leave the lock free for other libraries (YieldToForeign)
-- Expects  waiters, and all files before this one
-- Answer   o  done
--          ?  send the request to the full script
--          then, if the server was checked, "v NOW TTL TOKEN", see fastpath.lua

lock, record, queue, requests = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local request, entry = findRequest(waiters[1])
if not request or request.mode ~= 'x' or request.blind or entryTime(entry) + absence < now
  or ARGV[9] ~= '0' or exhausted() or grace(request.ttl) > 0 then return {'?'} end
-- As in serveQueue, the wake-up comes first.
local heard = wake(request)
if type(heard) ~= 'number' or heard == 0 then return {'?'} end
if waiters[2] then
  redis.call('ZREM', queue, waiters[1])
  redis.call('HDEL', requests, waiters[1])
else
  redis.call('DEL', queue, requests)
end
writeExclusive(reserve(request.tokens), now, waiters[1], request.ttl,
  wantedJSON(waiters[2], string.sub(entry, 18)))
setMeta('t', lastToken)
saveMeta()
local vouched = checked()
return {'o', vouched and string.format('%s %d', vouched, lastToken)}
