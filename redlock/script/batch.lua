-- Reads the locks and the counters of a batch. The files after this one compute all steps in
-- memory first; commit.lua then writes the results.
--
-- KEYS      see node.lua
-- ARGV      see node.lua
-- Provides  absence  after how long a waiter is removed that has not sent its request again, in
--                    milliseconds. Waiters send it three times as often
--           values   the values of the n keys, as they were read
--           held     the present values, by key
--           counter  the present counters, by field
--           raised   the fields of the counters that have changed
--           wrong    by field, the answer that says why a counter can't be right
--           gone     the keys to delete
--           deletes  the requests that delete a key
--           writes   by key, what to write: {first request that rests on it, value, TTL}. The
--                    field optional says that no request rests on it
--           freed    the keys with the waiters of locks that were freed
--           broken   the nonces of leases that were broken
--           most     the highest counter that can be right
--           since    the part of a new value that says when it was granted

local absence = 15000
local held, counter, raised = {}, {}, {}
local wrong = {}
local gone, deletes, writes, freed = {}, {}, {}, {}
local broken = {}
local values = redis.call('MGET', unpack(KEYS, 2, 1 + n))

-- Only a faulty client or clock makes a counter more than a day ahead, in microseconds, of the
-- clock and of the operator's floor.
local ahead = 86400000000
local floor = tonumber(meta[5]) or 0
local most = math.min(math.max(now, floor) + ahead, 2^53 - 2^20)
for i = 1, n do
  local field, text = ARGV[3 + i], meta[5 + i] or '0'
  held[KEYS[1 + i]] = values[i]
  local c = string.match(text, '^%d+$') and tonumber(text)
  counter[field] = c or 0
  if not c then
    wrong[field] = 'x the counter ' .. field .. ' is no number: ' .. string.sub(text, 1, 40)
  elseif c > most then
    wrong[field] = 'x the counter ' .. field .. ' is more than a day ahead of the clock: '
      .. string.sub(text, 1, 40)
  end
end
local format, sub = string.format, string.sub
local since = ' {"since":' .. format('%d', now) .. ','
