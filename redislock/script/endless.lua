-- Finds keys without an expiry that may be locks of other libraries. It writes nothing.
--
-- KEYS    the keys to look at
-- ARGV    not used
-- Answer  for each key a JSON object, which is empty unless the key has no expiry:
--           type    type of the key
--           value   value of a string of at most 512 bytes
--           fields  fields and values, in turn, of a hash of at most 64 fields

local answers = {}
for i = 1, #KEYS do
  local key, seen = KEYS[i], {}
  if redis.call('PTTL', key) == -1 then
    seen.type = redis.call('TYPE', key).ok
    if seen.type == 'string' and redis.call('STRLEN', key) <= 512 then
      seen.value = redis.call('GET', key)
    elseif seen.type == 'hash' and redis.call('HLEN', key) <= 64 then
      seen.fields = redis.call('HGETALL', key)
    end
  end
  answers[i] = cjson.encode(seen)
end
return answers
