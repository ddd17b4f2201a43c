-- Runs one command, after admit.lua.
--
-- KEYS[1]  the command's key
-- ARGV[1]  the command
-- ARGV     then its further arguments
-- Answer   that of the command

return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))
