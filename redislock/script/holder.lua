-- Serves a holder: tells it whether it still has its hold, and whether another process waits, or
-- changes what its grant says of it.
--
-- KEYS      lock, grants, queue
-- ARGV      id; the channel of the holder's process, or the holder as JSON fields
-- Expects   lock, grants, newEntry, othersWait, findGrant, confirmLost
-- Provides  check(id, channel), setHolder(id, holder)
-- Answer    l, w or o, see batch.lua

local function check(id, channel)
  if not findGrant(id) then
    confirmLost()
    return 'l'
  end
  return othersWait(channel) and 'w' or 'o'
end

-- withHolder changes a grant. The fields of the holder are its last ones, and begin with the pid.
-- No text of a grant contains these quotes, because JSON escapes them.
local function withHolder(json, holder)
  return string.sub(json, 1, string.find(json, ',"pid":', 1, true)) .. holder
end

local function setHolder(id, holder)
  local json, expiry = findGrant(id)
  if not json then
    confirmLost()
    return 'l'
  end
  if expiry then
    redis.call('HSET', grants, id, newEntry(expiry, withHolder(json, holder)))
  else
    redis.call('SET', lock, withHolder(json, holder), 'KEEPTTL')
  end
  return 'o'
end
