-- Makes the records of holds. A record is a JSON object with the token, the time of the grant,
-- and what the request says of itself: rest, which is an object without its opening brace.
--
-- KEYS      record
-- ARGV      not used
-- Expects   record
-- Provides  recordJSON(token, since, rest)        the record as text
--           writeRecord(token, since, ttl, rest)  writes the record of an exclusive hold
-- Answer    none: the files after this one answer

local function recordJSON(token, since, rest)
  return string.format('{"token":%d,"since":%d,', token, since) .. rest
end

-- The record lasts longer than the lock's key, so that not every renewal has to extend it.
local function writeRecord(token, since, ttl, rest)
  redis.call('SET', record, recordJSON(token, since, rest), 'PX', 4 * ttl + 60000)
end
