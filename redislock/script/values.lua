-- Reads keys that may be locks. It writes nothing.
--
-- KEYS     the keys
-- ARGV[1]  1 to skip keys that expire
-- ARGV[2]  the index of the last byte of a string that is read
-- Answer   for each key a JSON object, which is empty if the key is skipped:
--            type, left  type of the key, and what PTTL says of it
--            value       value of a string, or its beginning
--            fields      fields and values, in turn, of a hash of at most 64 fields

local answers = {}
for i = 1, #KEYS do
  local key, left, seen = KEYS[i], redis.call('PTTL', KEYS[i]), {}
  if left == -1 or ARGV[1] ~= '1' then
    seen.type, seen.left = redis.call('TYPE', key).ok, left
    if seen.type == 'string' then
      seen.value = redis.call('GETRANGE', key, '0', ARGV[2])
    elseif seen.type == 'hash' and redis.call('HLEN', key) <= 64 then
      seen.fields = redis.call('HGETALL', key)
    end
  end
  table.insert(answers, cjson.encode(seen))
end
return answers
