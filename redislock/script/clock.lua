-- Reads the server's clock, when a time is needed. All times in the scripts are read from it.
--
-- Provides  now()  microseconds since the Unix epoch, the same in the whole call

local micros

local function now()
  if not micros then
    local time = redis.call('TIME')
    micros = time[1] * 1000000 + time[2]
  end
  return micros
end
