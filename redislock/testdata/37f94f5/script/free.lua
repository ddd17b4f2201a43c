-- Releases one exclusive lock for which nobody waits. It leaves every other case to the full
-- script.
--
-- KEYS    lock, record, queue
-- ARGV    owner, token
-- Answer  o  done
--         ?  send the request to the full script

local held, head = redis.call('MGET', KEYS[1], KEYS[2]), '{"token":' .. ARGV[2] .. ','
if held[1] ~= ARGV[1] or held[2] and string.sub(held[2], 1, #head) ~= head
  or redis.call('EXISTS', KEYS[3]) == 1 then return {'?'} end
redis.call('DEL', KEYS[1], KEYS[2])
return {'o'}
