-- Lists the live leases that are longer than the minimum grace period. After a failover the grace
-- period covers them. A lease that was renewed with another TTL may stay in the list until it would
-- have ended.
--
-- KEYS[2]   a sorted set: members "TTL ID LOCK", with the TTL in ms; scores are the leases'
--           ends in microseconds
-- Provides  addLongLease(id, ttl)  adds a lease if it is that long

-- addLongLease also removes the leases that have ended, but only then: a server whose memory is
-- full refuses ZADD, unless the script has written before.
local function addLongLease(id, ttl)
  if not isLong(ttl) then return end
  redis.call('ZADD', KEYS[2], string.format('%d', now() + ttl * 1000),
    string.format('%d %s %s', ttl, id, lock))
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now()))
  extendTo(KEYS[2], ttl)
end
