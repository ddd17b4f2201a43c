-- Writes the results of a batch: first all counters in one command, and then the keys. Whatever
-- fails in between, no key passes to another round without a greater counter.
--
-- KEYS     see node.lua
-- ARGV     see node.lua
-- Answer   answers, see serve.lua

local fields = {}
for name in pairs(raised) do
  fields[#fields + 1] = name
  fields[#fields + 1] = format('%d', counter[name])
end
local done = #fields == 0 or redis.pcall('HSET', metaKey, unpack(fields))
if type(done) == 'table' then
  -- If the memory is full, requests that need none are done all the same: extensions are done
  -- already, and keys are deleted below. After any other error nothing is written.
  local full = sub(done.err, 1, 3) == 'OOM'
  for i = 1, n do
    local lock = KEYS[1 + i]
    if raised[ARGV[3 + i]] then
      writes[lock] = nil
      if not full or not deletes[i] then answers[i] = 'x ' .. done.err end
    elseif not full and writes[lock] and not writes[lock].optional then
      answers[i] = 'x ' .. done.err
    end
  end
  if not full then return answers end
end

local keys = {}
for key in pairs(gone) do keys[#keys + 1] = key end
if #keys > 0 then redis.call('DEL', unpack(keys)) end
for key, w in pairs(writes) do
  local result
  if values[w[1]] and not gone[key] then
    result = redis.pcall('SET', key, w[2], 'PX', w[3])
  else
    result = redis.pcall('SET', key, w[2], 'PX', w[3], 'NX')
  end
  if (not result or result.err) and not w.optional then
    -- Without a result the key was neither free nor a string, so no request of this key was
    -- right; after an error, none from the first that rests on the write.
    local answer = result and 'x ' .. result.err or 'k ' .. redis.call('TYPE', key).ok
    for i = result and w[1] or 1, n do
      if KEYS[1 + i] == key then answers[i] = answer end
    end
  end
end

-- These messages are hints. An error, such as a missing permission, is ignored.
for _, nonce in ipairs(broken) do
  redis.pcall('PUBLISH', 'snib.rb:' .. string.match(nonce, '^[^.]*'), nonce)
end
if #freed > 0 and redis.call('EXISTS', unpack(freed)) > 0 then
  for _, waitersKey in ipairs(freed) do
    -- The waiters spread their attempts by their number.
    local count = redis.pcall('HLEN', waitersKey)
    if type(count) == 'number' and count > 0 then redis.pcall('PUBLISH', waitersKey, count) end
  end
end
return answers
