-- Tells a holder whether it still has its hold, and whether another process waits.
--
-- KEYS      lock, grants, queue, requests
-- ARGV      id, the channel of the holder's process
-- Expects   othersWait, findGrant
-- Provides  handlers.c(id, channel)
-- Answer    l, w or o, see full.lua

function handlers.c(id, channel)
  if not findGrant(id) then return 'l' end
  return othersWait(channel) and 'w' or 'o'
end
