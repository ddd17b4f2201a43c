-- Tells a holder whether it still has its hold, and whether another process waits.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token, the channel of the holder's process
-- Expects   othersWait, findHold
-- Provides  check(owner, token, channel)
-- Answer    l, w or o, see full.lua

local function check(owner, token, channel)
  if not findHold(owner, token) then return 'l' end
  return othersWait(channel) and 'w' or 'o'
end
