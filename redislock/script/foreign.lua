-- Reads keys that may be locks of other libraries. It writes nothing.
--
-- KEYS     the keys
-- ARGV[1]  1 to skip keys that expire
-- Answer   for each key a JSON object, which is empty if the key is skipped:
--            type, left  type of the key, and what PTTL says of it
--            value       value of a string of at most 4,096 bytes
--            fields      fields and values, in turn, of a hash of at most 64 fields

local answers = {}
for i = 1, #KEYS do
  local key, left, seen = KEYS[i], redis.call('PTTL', KEYS[i]), {}
  if left == -1 or ARGV[1] ~= '1' then
    seen.type, seen.left = redis.call('TYPE', key).ok, left
    if seen.type == 'string' then
      local value = redis.call('GETRANGE', key, 0, 4096)
      if #value <= 4096 then seen.value = value end
    elseif seen.type == 'hash' and redis.call('HLEN', key) <= 64 then
      seen.fields = redis.call('HGETALL', key)
    end
  end
  table.insert(answers, cjson.encode(seen))
end
return answers
