-- Extends leases of any kind with everything that belongs to them, and never shortens one.
--
-- KEYS[1]  the server's memory, see memory.lua
-- KEYS[2]  the long leases, see longlease.lua
-- KEYS     then for each lease: the lock, its record
-- ARGV[1]  the minimum grace period, and
-- ARGV[2]  the longest TTL, see limits.lua
-- ARGV     then for each lease: the value that the lock's key must have, the owner, the token, the
--          TTL in ms
-- Expects  now, extendTo, addLongLease
-- Answer   one text with a character for each lease: 1 if it was extended, 0 if it has ended

local answers = {}

-- isRecordOf reports whether a record is that of the hold with this token.
local function isRecordOf(json, token)
  local head = '{"token":' .. token .. ','
  return type(json) == 'string' and string.sub(json, 1, #head) == head
end

for i = 3, #ARGV, 4 do
  local value, owner, token, ttl = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local lock, record, ok = KEYS[(i + 3) / 2], KEYS[(i + 5) / 2], false
  if redis.pcall('GET', lock) == value then
    if value == owner then
      local json = redis.pcall('GET', record)
      ok = not json or isRecordOf(json, token)
      if ok then
        extendTo(lock, ttl)
        extendTo(record, 4 * ttl + 60000)
      end
    else
      local entry = redis.pcall('HGET', record, owner)
      local expiry = type(entry) == 'string' and tonumber(string.sub(entry, 1, 16)) or 0
      ok = expiry > now and isRecordOf(string.sub(entry, 17), token)
      if ok then
        redis.call('HSET', record, owner,
          string.format('%016d', math.max(expiry, now + ttl * 1000)) .. string.sub(entry, 17))
        for _, key in ipairs({lock, record}) do extendTo(key, ttl) end
      end
    end
  end
  if ok then addLongLease(lock, owner, ttl) end
  answers[#answers + 1] = ok and '1' or '0'
end
return {table.concat(answers)}
