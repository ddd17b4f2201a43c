-- Lists the live leases that are longer than the minimum grace period. After a failover the grace
-- period covers them. A lease that was renewed with another TTL may stay in the list until it would
-- have ended.
--
-- KEYS[2]   a sorted set: members "TTL ID LOCK", with the TTL in ms; scores are the leases'
--           ends in microseconds
-- ARGV      not used
-- Expects   now, floor
-- Provides  extendTo(key, ms)               makes a key last for at least ms
--           addLongLease(lock, id, ttl)  adds a lease if it is that long
-- Answer    none: the files after this one answer

local function extendTo(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

-- addLongLease also removes the leases that have ended, but only then: a server whose memory is
-- full refuses ZADD, unless the script has written before.
local function addLongLease(lock, id, ttl)
  if not floor or ttl <= floor then return end
  redis.call('ZADD', KEYS[2], string.format('%d', now() + ttl * 1000),
    string.format('%d %s %s', ttl, id, lock))
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now()))
  extendTo(KEYS[2], ttl)
end
