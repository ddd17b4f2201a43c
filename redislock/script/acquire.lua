-- Acquires a lock, or puts the request into the queue.
--
-- KEYS      lock, grants, queue, requests
-- ARGV      id, mode, TTL in ms, number of tokens; 1 to wait in the queue, 2 if the request must be
--           there already, and otherwise 0; the request's JSON without its opening brace and its id
-- Expects   all files before this one
-- Provides  handlers.A(id, mode, ttl, tokens, waits, rest)
-- Answer    g, q, n, h, e or k, see full.lua

local function checkTokens()
  if exhausted() then
    error('the last fencing token, field t of ' .. KEYS[1] .. ', is ' .. memory()[1]
      .. ', above which none can be counted', 0)
  end
end

-- reacquire answers a request that was granted before: the answer was lost, or a release has handed
-- the lock over. It returns nil if there is no such grant.
local function reacquire(id, mode, ttl, value)
  local json, expiry = findGrant(id, value)
  local grant = json and parseGrant(json)
  if not grant or grant.mode ~= mode then return end
  extendGrant(id, json, expiry, ttl)
  addLongLease(lock, id, ttl)
  return grantAnswer(grant.token, othersWait(grant.channel))
end

-- timeLeft returns for how many ms the present holders keep a request of this mode out.
local function timeLeft(value, mode)
  if value and isMulti(value) then
    local _, first, final = removeEnded()
    return math.ceil(((value == valueOf(mode) and first or final) - now()) / 1000)
  end
  return not value and yieldLeft() or redis.call('PTTL', lock)
end

-- hintHolders tells the holders that another process waits, whose channel this is. The grant is
-- that of an exclusive hold, or false if several may hold the lock.
local function hintHolders(grant, channel)
  if grant then
    if grant.channel ~= channel then hint(grant, 'w') end
    return
  end
  for _, entry in ipairs(redis.call('HVALS', grants)) do
    local one = parseGrant(entryJSON(entry))
    if one and one.channel ~= channel then hint(one, 'w') end
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

function handlers.A(id, mode, ttl, tokens, waits, rest)
  ttl, tokens = tonumber(ttl), tonumber(tokens)
  local value, keyType = lockValue()
  local answer = value and reacquire(id, mode, ttl, value)
  if answer then return answer end -- also in the grace period: it is held already
  if not value or isMulti(value) then -- otherwise this request is not granted in any case
    local wait = grace(ttl)
    if wait > 0 then
      if value and waits == '0' and not hasRoom(mode, value) then
        return 'h ' .. timeLeft(value, mode)
      end
      return 'e ' .. wait
    end
    checkTokens()
  end
  if value == nil then return 'k a ' .. keyType end
  if value and isMulti(value) and value ~= valueOf(mode) and removeEnded() == 0 then
    value = false
  end
  local idle = value == false and redis.call('EXISTS', queue) == 0
  if value == false and not idle then
    answer = serveQueue(id, value)
    if answer then return answer end
    value = lockValue()
  end
  if waits == '2' and not findRequest(id) then return 'n' end
  local kind = not idle and conflictingKind(value, mode)
  -- A request that is queued waits on if a client of another library takes the lock, which is then
  -- of the other kind.
  if kind and not findRequest(id) then return 'k ' .. kind end
  if idle or hasRoom(mode, value) and redis.call('EXISTS', queue) == 0 then
    local token = reserve(tokens)
    writeHold(token, now(), id, mode, ttl, rest)
    return grantAnswer(token, false)
  end
  if waits == '0' then return 'h ' .. timeLeft(value, mode) end
  local new, alone = enqueue(id, rest)
  if not value or isMulti(value) then -- otherwise there is no room for any waiter
    answer = serveQueue(id)
    if answer then return answer end
    value = lockValue()
  end
  local grant = value and not isMulti(value) and parseGrant(value)
  local isForeign = grant == nil
  if new and value and not isForeign then
    hintHolders(grant, parseRequest('{' .. rest).channel)
  end
  local first = alone or firstWaiter() == id
  return string.format('q %d %d', timeLeft(value, mode),
    first and (isForeign and 2 or 1) or 0)
end
