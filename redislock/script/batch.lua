-- Serves a batch of requests of any kind. A request that fails does not keep the others of its
-- batch from being served.
--
-- KEYS[1]  the server's memory, see memory.lua
-- KEYS[2]  the long leases, see longlease.lua
-- KEYS     then for each request: lock, its grants, its queue
-- ARGV[1]  the minimum grace period, and
-- ARGV[2]  the longest TTL, see limits.lua
-- ARGV[3]  1 with DurableAOF, see identity.lua
-- ARGV     then for each request: its code, and its arguments, which stand in the file of the
--          function. The code is A for acquire, which has six arguments, R for release, or a name
--          in made.lua; these have two
-- Answer   one text for each request:
--            g TOKEN WANTED         granted, or still held; WANTED is 1 if another process waits
--            q LEFT PLACE           in the queue. LEFT is for how many ms the present holders keep
--                                   the waiter out. PLACE is 1 at the head of the queue, 2 there
--                                   if another library holds the lock, which does not announce
--                                   its release, and 0 elsewhere
--            n                      the request is not in the queue any more
--            h LEFT                 held; LEFT is -1 if the lock's key does not expire
--            e LEFT                 nothing is granted for LEFT ms: the grace period
--            k KIND                 the name is in use as KIND
--            o                      done
--            l                      the hold does not exist
--            x TEXT                 an error of Redis

local answers, arg, failed = {}, 4, false
for k = 3, #KEYS, 3 do
  lock, grants, queue = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local code = ARGV[arg]
  local last = arg + (code == 'A' and 6 or 2)
  local serve = code == 'A' and acquire or code == 'R' and release or contended().rare()[code]
  local ok, answer = pcall(serve, unpack(ARGV, arg + 1, last))
  if not ok then failed, answer = true, 'x ' .. errorText(answer) end
  answers[#answers + 1] = answer
  arg = last + 1
end
if lastToken then setMeta('t', lastToken) end
local noted
if #changes > 0 then
  noted = redis.pcall('HSET', KEYS[1], unpack(changes))
elseif held or failed then -- nothing may have been written
  noted = redis.pcall('HDEL', KEYS[1], 'snib.none')
end
local text = type(noted) == 'table' and noted.err or ''
-- A replica refuses both. It may lag behind, so the answers count for nothing, and the client must
-- leave it.
local readOnly = string.match(text, 'READONLY .*')
if readOnly then return redis.error_reply(readOnly) end
-- Without memory, no request has written anything, and the answers are right without the changes.
if #changes > 0 and text ~= '' and not string.find(text, 'OOM ', 1, true) then return noted end
return answers
