-- Extends the keys of exclusive leases that have the same TTL, and never shortens one. It does not
-- look at their records.
--
-- KEYS     the locks
-- ARGV[1]  the TTL in ms
-- ARGV     then the owners, in the order of the locks
-- Answer   one text with a character for each lease: 1 if it was extended, 0 if it has ended

local held, answers, ttl = redis.call('MGET', unpack(KEYS)), {}, tonumber(ARGV[1])
for i = 1, #KEYS do
  if held[i] == ARGV[i + 1] then
    if redis.call('PTTL', KEYS[i]) < ttl then redis.call('PEXPIRE', KEYS[i], ttl) end
    answers[i] = '1'
  else
    answers[i] = '0'
  end
end
return {table.concat(answers)}
