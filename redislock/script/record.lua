-- Writes exclusive holds, and makes the records of all holds. A record is a JSON object with the
-- token, the time of the grant, and what the request says of itself: rest, which is an object
-- without its opening brace. If a release has granted the hold, wanted is in it too: whether
-- another request was in the queue then.
--
-- KEYS      lock, record
-- ARGV      not used
-- Expects   lock, record, addLongLease
-- Provides  recordJSON(token, since, rest)        the record as text
--           wantedJSON(wanted, rest)              what becomes of rest with wanted
--           writeRecord(token, since, ttl, rest)  writes the record of an exclusive hold
--           writeExclusive(...)                   writes an exclusive hold
-- Answer    none: the files after this one answer

local function recordJSON(token, since, rest)
  return string.format('{"token":%d,"since":%d,', token, since) .. rest
end

local function wantedJSON(wanted, rest) return '"wanted":' .. (wanted and 1 or 0) .. ',' .. rest end

-- The record lasts longer than the lock's key, so that not every renewal has to extend it.
local function writeRecord(token, since, ttl, rest)
  redis.call('SET', record, recordJSON(token, since, rest), 'PX', 4 * ttl + 60000)
end

local function writeExclusive(token, since, owner, ttl, rest)
  addLongLease(lock, owner, ttl)
  redis.call('SET', lock, owner, 'PX', ttl)
  writeRecord(token, since, ttl, rest)
end
