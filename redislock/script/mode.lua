-- Translates between the mode of a request and the value of the lock's key. The modes are x,
-- exclusive; s, shared; and a number, the size of a semaphore. The value is the grant if the hold
-- is exclusive (grant.lua), and the same for all holders of a shared lock or of a semaphore.
--
-- KEYS      lock
-- ARGV      not used
-- Expects   lock
-- Provides  valueOf(mode)        the value while several hold the lock in this mode
--           isMulti(value)       reports whether several may hold the lock
--           kindOf(mode)         the kind of lock, for people
--           kindOfValue(value)   likewise
--           lockValue()          the present value
-- Answer    none: the files after this one answer

local function valueOf(mode)
  return mode == 's' and 'snib:shared' or 'snib:slots:' .. mode
end

local function isMulti(value)
  return value == 'snib:shared' or string.sub(value, 1, 11) == 'snib:slots:'
end

local function kindOf(mode)
  return string.find(mode, '^%d') and 'a semaphore of ' .. mode or 'a lock'
end

local function kindOfValue(value)
  return kindOf(string.match(value, '^snib:slots:(%d+)$') or 'x')
end

-- lockValue returns false if the key does not exist, and nil and the key's type if it is not a
-- string.
local function lockValue()
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return nil, redis.call('TYPE', lock).ok end
  return value
end
