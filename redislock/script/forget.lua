-- Ends the grace period: declares that this server wrote last, and that its memory is complete.
--
-- KEYS[1]  the server's memory, see memory.lua
-- KEYS[2]  the long leases, see longlease.lua
-- ARGV     not used
-- Answer   o

redis.call('HSET', KEYS[1],
  'r', string.match(redis.call('INFO', 'server'), 'run_id:(%w+)'), 'c', 0, 'x', 0)
redis.call('DEL', KEYS[2])
return {'o'}
