-- Reads locks, their holders and their waiters. It writes nothing.
--
-- KEYS    for each lock: the lock, its grants, its queue
-- Answer  for each lock a JSON object:
--           type, left  type of the lock's key, and what PTTL says of it
--           now         the server's clock, in microseconds
--           value       value of the lock's key, if that is a string
--           grants      entries of the holders of a shared lock or semaphore
--           fields      fields and values, in turn, of the lock's key, if that is a hash of at
--                       most 64 fields that the user may read
--           requests    requests of the waiters in order of arrival, each after the time of that

local time = redis.call('TIME')
local answers = {}
for k = 1, #KEYS, 3 do
  local keyType = redis.call('TYPE', KEYS[k]).ok
  local seen = {
    type = keyType,
    left = redis.call('PTTL', KEYS[k]),
    now = string.format('%d', time[1] * 1000000 + time[2]),
  }
  if keyType == 'string' then
    seen.value = redis.call('GET', KEYS[k])
    if redis.call('TYPE', KEYS[k + 1]).ok == 'hash' then
      seen.grants = redis.call('HVALS', KEYS[k + 1])
    end
  elseif keyType == 'hash' then
    local size = tonumber(redis.pcall('HLEN', KEYS[k]))
    local fields = size and size <= 64 and redis.pcall('HGETALL', KEYS[k]) or {}
    if #fields > 0 then seen.fields = fields end
  end
  local waiters = redis.call('ZRANGE', KEYS[k + 2], 0, -1, 'WITHSCORES')
  local requests = {}
  for i = 1, #waiters, 2 do -- queue.lua describes the members
    if string.find(waiters[i], '^".-","mode":') then
      table.insert(requests, string.format('%016d{"id":', waiters[i + 1]) .. waiters[i])
    end
  end
  if #requests > 0 then seen.requests = requests end -- an empty table would become an object
  table.insert(answers, cjson.encode(seen))
end
return answers
