-- Tells waiters that locks were freed.
--
-- KEYS      not used
-- ARGV      not used
-- Expects   nothing
-- Provides  publishFreed(waitersKeys)  publishes the number of waiters on the channel of each lock
--                                      that has waiters; takes the keys of the waiters
-- Answer    none: the files after this one answer

-- These messages are hints. An error, such as a missing permission, is ignored.
local function publishFreed(waitersKeys)
  if #waitersKeys == 0 or redis.call('EXISTS', unpack(waitersKeys)) == 0 then return end
  for _, waitersKey in ipairs(waitersKeys) do
    -- The waiters spread their attempts by their number.
    local count = redis.pcall('HLEN', waitersKey)
    if type(count) == 'number' and count > 0 then redis.pcall('PUBLISH', waitersKey, count) end
  end
end
