-- Gives waiters their places in the queue.
--
-- KEYS      queue, requests
-- ARGV      not used
-- Expects   now, absence, queue, requests, newEntry
-- Provides  enqueue(id, rest)  adds a waiter to the end of the queue unless it is there, and notes
--                              that it is alive. It reports whether the waiter is new, and whether
--                              it is alone
-- Answer    none: the files after this one answer

-- The keys last for twice as long as a waiter that is silent. They are extended once in a third of
-- its time: by each waiter behind a tail that came in the third before.
local function third(at) return math.floor(3 * at / absence) end

local function enqueue(id, rest)
  local tail = tonumber(redis.call('ZREVRANGE', queue, '0', '0', 'WITHSCORES')[2])
  local place = math.max(now(), tail and tail + 1 or 0)
  local new = redis.call('ZADD', queue, 'NX', string.format('%d', place), id) == 1
  redis.call('HSET', requests, id, newEntry(now(), '{"id":' .. id .. ',' .. rest))
  if not tail or third(tail) ~= third(now()) then
    redis.call('PEXPIRE', queue, absence / 500)
    redis.call('PEXPIRE', requests, absence / 500)
  end
  return new, not tail
end
