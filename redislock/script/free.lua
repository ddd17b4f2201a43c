-- Releases one exclusive lock. It leaves a lock that is not the owner's to the full script, and one
-- for which somebody waits to handover.lua, which follows.
--
-- KEYS[3]  to KEYS[5]: lock, record, queue
-- ARGV[7]  the owner, and
-- ARGV[8]  the token
-- Provides waiters  the first two waiters, of which there is one at least
-- Answer   o  done
--          ?  send the request to the full script

local held, head = redis.call('MGET', KEYS[3], KEYS[4]), '{"token":' .. ARGV[8] .. ','
if held[1] ~= ARGV[7] or held[2] and string.sub(held[2], 1, #head) ~= head then return {'?'} end
local waiters = redis.call('ZRANGE', KEYS[5], 0, 1)
if not waiters[1] then
  redis.call('DEL', KEYS[3], KEYS[4])
  return {'o'}
end
