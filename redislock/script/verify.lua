-- Tells whether a hold exists, and whether another process waits for the lock. It writes nothing.
--
-- KEYS      lock, grants, queue
-- ARGV      id, and nothing
-- Provides  verify(id)
-- Answer    g or l, see batch.lua

local function verify(id)
  local json = findGrant(id)
  return json and grantAnswerOf(json) or 'l'
end
