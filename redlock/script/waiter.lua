-- Notes who waits for a lock. The waiters are in a hash under snib.rw: and the lock's key, by id:
-- when the waiter was last heard of, and first, both in microseconds with 16 digits, and a JSON
-- object.
--
-- Provides  addWaiter(waitersKey, id, rest)  rest is the object without its opening brace

local function addWaiter(waitersKey, id, rest)
  local old, stamp = redis.pcall('HGET', waitersKey, id), format('%016d', now)
  if type(old) == 'table' then return end -- the key is of another type, so it is not ours
  local first = old and string.match(sub(old, 17, 32), '^%d+$')
  local entry = stamp .. (first and #first == 16 and first or stamp) .. '{' .. rest
  local added = redis.pcall('HSET', waitersKey, id, entry)
  if added == 1 and redis.call('HLEN', waitersKey) % 32 == 0 then -- remove those that are gone
    local all = redis.call('HGETALL', waitersKey)
    for i = 1, #all, 2 do
      if (tonumber(sub(all[i + 1], 1, 16)) or 0) + absence * 1000 < now then
        redis.call('HDEL', waitersKey, all[i])
      end
    end
  end
  redis.call('PEXPIRE', waitersKey, absence)
end
