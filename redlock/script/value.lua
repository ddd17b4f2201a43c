-- Changes the values of locks. A value is "NONCE TOKEN JSON", where the nonce ends with a space.
--
-- Provides  write(i, lock, value, ttl)      notes what request i writes to a key
--           withToken(value, nonce, token)  a value with another token
--           extend(lock, ttl)               sets a later expiry, unless it has one or ttl is 0
--           timeLeft(lock)                  the time until a key expires; -1 for never

-- write keeps the first request whose answer rests on the key, for commit.lua.
local function write(i, lock, value, ttl)
  local w = writes[lock]
  held[lock], writes[lock] = value, {w and w[1] or i, value, ttl}
end

local function withToken(value, nonce, token)
  return nonce .. token .. (string.match(value, ' .*$', #nonce + 1) or ' {}')
end

-- timeLeft and extend also work for a key that this batch has yet to write.
local function timeLeft(lock)
  return writes[lock] and writes[lock][3] or redis.call('PTTL', lock)
end

local function extend(lock, ttl)
  if ttl == '0' or tonumber(timeLeft(lock)) >= tonumber(ttl) then return end
  if writes[lock] then writes[lock][3] = ttl else redis.call('PEXPIRE', lock, ttl) end
end
