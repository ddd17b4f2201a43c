-- Reads the server's clock. All times in the scripts are read from it.
--
-- KEYS      not used
-- ARGV      not used
-- Provides  now  microseconds since the Unix epoch
-- Answer    none: the files after this one answer

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
