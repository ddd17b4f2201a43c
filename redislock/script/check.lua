-- Tells a holder whether it still has its hold, and whether another process waits. It writes the
-- record of the hold if there is none.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token, the channel of the holder's process; then, if the record may be missing,
--           the TTL in ms, the age of the hold in microseconds, and the request's JSON without its
--           opening brace
-- Expects   now, othersWait, findHold, writeRecord
-- Provides  check(owner, token, channel, ttl, age, rest)
-- Answer    l, w or o, see full.lua

local function check(owner, token, channel, ttl, age, rest)
  local found, json = findHold(owner, token)
  if not found then return 'l' end
  if rest and not json then writeRecord(token, now - age, ttl, rest) end
  return othersWait(channel) and 'w' or 'o'
end
