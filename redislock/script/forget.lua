-- Ends the grace period: declares that this server wrote last, and that its memory is complete. The
-- next token is later than all that another server may have granted.
--
-- KEYS[1]  the server's memory, see memory.lua
-- KEYS[2]  the long leases, see longlease.lua
-- Answer   o

local last = tonumber(redis.call('HGET', KEYS[1], 't'))
if not last or last < now() then redis.call('HSET', KEYS[1], 't', string.format('%d', now())) end
redis.call('HSET', KEYS[1],
  'r', string.match(redis.call('INFO', 'server'), 'run_id:(%w+)'), 'c', 0, 'x', 0)
redis.call('DEL', KEYS[2])
return {'o'}
