-- Names the keys and channels that Redisson has for a lock. A script can't list these keys among
-- its own, because they need not exist or lie in the lock's slot, and because the user may lack
-- the right to them. So it calls them by redis.pcall, and goes without them if that fails.
--
-- Provides  redissonName(prefix, name)  the key or channel that begins with prefix

local function redissonName(prefix, name)
  return prefix .. ':' .. (string.find(name, '{', 1, true) and name or '{' .. name .. '}')
end
