-- Frees locks whose leases were never extended. So no late extension can take them again, and
-- their counters need not be raised.
--
-- KEYS     the locks
-- ARGV     their nonces; each ends with a space
-- Expects  publish.lua
-- Answer   one text for each lock:
--            o  freed
--            ?  the key does not have the nonce; the request f of serve.lua says why

local values = redis.call('MGET', unpack(KEYS))
local answers, gone, freed = {}, {}, {}
for i, nonce in ipairs(ARGV) do
  answers[i] = '?'
  if values[i] and string.sub(values[i], 1, #nonce) == nonce then
    answers[i], gone[#gone + 1], freed[#freed + 1] = 'o', KEYS[i], 'snib.rw:' .. KEYS[i]
  end
end
if #gone > 0 then redis.call('DEL', unpack(gone)) end
publishFreed(freed)
return answers
