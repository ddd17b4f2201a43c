-- Acquires a lock, or puts the request into the queue.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, mode, TTL in ms, number of tokens, 1 to wait in the queue, the request's JSON
--           without its opening brace
-- Expects   all files before this one
-- Provides  acquire(owner, mode, ttl, tokens, waits, rest)
-- Answer    g, q, h, e or k, see full.lua

local function checkTokens()
  if exhausted() then
    error('the last fencing token, field t of ' .. KEYS[1] .. ', is ' .. meta[1]
      .. ', above which none can be counted', 0)
  end
end

-- reacquire answers an owner that holds the lock already, because its earlier answer was lost. It
-- returns nil if the owner does not hold the lock.
local function reacquire(value, owner, mode, ttl, tokens, rest)
  local hold
  if mode == 'x' then
    if value ~= owner then return end
    hold = exclusiveHold()
  else
    local entry = value == valueOf(mode) and redis.call('HGET', record, owner)
    if not entry or entryTime(entry) <= now then return end
    hold = parseHold(entryJSON(entry))
  end
  dequeue(owner)
  local token, since = nil, now
  if hold and hold.owner == owner then
    token, since, tokens = hold.token, hold.since, hold.tokens
    rest = string.gsub(rest, '"tokens":%d+', string.format('"tokens":%d', tokens), 1)
  else
    checkTokens()
    token = reserve(tokens)
  end
  writeHold(token, since, owner, mode, ttl, rest)
  return grantAnswer(token, tokens, othersWait(parseRequest('{' .. rest).channel))
end

-- timeLeft returns for how many ms the present holders keep a request of this mode out.
local function timeLeft(value, mode)
  if value and isMulti(value) then
    local _, first, final = removeEnded()
    return math.ceil(((value == valueOf(mode) and first or final) - now) / 1000)
  end
  return not value and yieldLeft() or redis.call('PTTL', lock)
end

-- isForeign reports whether another library holds the lock. It does not announce its release.
local function isForeign(value, hold)
  if not value or value == 'snib:kept' or isMulti(value) then return false end
  return not hold or hold.owner ~= value
end

-- hintHolders tells the holders that another process waits, whose channel this is. Hold is that of
-- an exclusive lock.
local function hintHolders(value, hold, channel)
  local holders = {hold}
  if isMulti(value) then
    for _, entry in ipairs(redis.call('HVALS', record)) do
      table.insert(holders, parseHold(entryJSON(entry)))
    end
  end
  for _, holder in ipairs(holders) do
    if holder.channel ~= channel then hint(holder, 'w') end
  end
end

-- conflictingKind returns the kind of lock that the name is in use as, or nil if it is the one
-- that the mode asks for.
local function conflictingKind(value, mode)
  local kind = value and kindOfValue(value)
  if not value then
    local first = firstWaiter()
    local request = first and findRequest(first)
    kind = request and kindOf(request.mode)
  end
  if kind and kind ~= kindOf(mode) then return kind end
end

-- isQueued reports whether a request is in the queue. It waits on there if a client of another
-- library takes the lock, which is then of the other kind.
local function isQueued(owner, mode)
  local request = findRequest(owner)
  return request and request.mode == mode
end

-- currentValue removes ended holds and serves the queue, and then returns the same as lockValue.
local function currentValue(mode)
  local value, keyType = lockValue()
  if value and isMulti(value) and value ~= valueOf(mode) and removeEnded() == 0 then
    value = false
  end
  if value == false and redis.call('EXISTS', queue) == 1 then
    serveQueue()
    value = lockValue()
  end
  return value, keyType
end

local function acquire(owner, mode, ttl, tokens, waits, rest)
  ttl, tokens = tonumber(ttl), tonumber(tokens)
  local value, keyType = lockValue()
  local answer = value and reacquire(value, owner, mode, ttl, tokens, rest)
  if answer then return answer end -- also in the grace period: it is held already
  local wait = grace(ttl)
  if wait > 0 then
    if value and waits ~= '1' and not hasRoom(mode) then return 'h ' .. timeLeft(value, mode) end
    return 'e ' .. wait
  end
  checkTokens()
  value, keyType = currentValue(mode)
  if value == nil then return 'k a ' .. keyType end
  answer = value and reacquire(value, owner, mode, ttl, tokens, rest)
  if answer then return answer end
  local kind = conflictingKind(value, mode)
  if kind and not isQueued(owner, mode) then return 'k ' .. kind end
  if hasRoom(mode, value) and redis.call('EXISTS', queue) == 0 then
    local token = reserve(tokens)
    writeHold(token, now, owner, mode, ttl, rest)
    return grantAnswer(token, tokens, false)
  end
  if waits ~= '1' then return 'h ' .. timeLeft(value, mode) end
  local new, alone, channel = enqueue(owner, rest)
  if not value or isMulti(value) then -- otherwise there is no room for any waiter
    answer = serveQueue(owner)
    if answer then return answer end
    value = lockValue()
  end
  local hold = value and not isMulti(value) and exclusiveHold() or nil
  if new and value then hintHolders(value, hold, channel) end
  local first = alone or firstWaiter() == owner
  return string.format('q %d %d', timeLeft(value, mode),
    first and (isForeign(value, hold) and 2 or 1) or 0)
end
