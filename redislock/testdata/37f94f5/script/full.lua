-- Reads the server's clock. All times in the scripts are read from it.
--
-- KEYS      not used
-- ARGV      not used
-- Provides  now  microseconds since the Unix epoch
-- Answer    none: the files after this one answer

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Reads the limits of the grace period, in milliseconds.
--
-- KEYS      not used
-- ARGV[1]   the minimum grace period, or text that is no number if failover-grace is off
-- ARGV[2]   the longest TTL
-- Provides  floor   the minimum grace period, or nil
--           maxTTL  the longest TTL
-- Answer    none: the files after this one answer

local floor, maxTTL = tonumber(ARGV[1]), tonumber(ARGV[2])
-- Reads and writes what the store remembers of itself. A server that finds its own run_id there
-- wrote last; one that does not has restarted, was promoted, or has lost its memory.
--
-- KEYS[1]   a hash with the fields
--             t  the last fencing token
--             r  the run_id of the server that wrote last
--             c  the time when the server's memory begins, in microseconds
--             x  for how long from c leases may live that the memory does not contain, in ms
-- ARGV      not used
-- Provides  meta                   the values of t, r, c and x; false for a missing field
--           setMeta(field, value)  changes a field
--           saveMeta()             writes the changed fields
-- Answer    none: the files after this one answer

local meta = redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x')
local changes = {}

local function setMeta(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = type(value) == 'number' and string.format('%d', value) or value
end

local function saveMeta()
  if #changes > 0 then redis.call('HSET', KEYS[1], unpack(changes)) end
end
-- Lists the live leases that are longer than the minimum grace period. After a failover the grace
-- period covers them.
--
-- KEYS[2]   a sorted set: members "TTL OWNER LOCK", with the TTL in ms; scores are the leases'
--           ends in microseconds
-- ARGV      not used
-- Expects   now, floor
-- Provides  extendTo(key, ms)               makes a key last for at least ms
--           addLongLease(lock, owner, ttl)  adds a lease if it is that long
-- Answer    none: the files after this one answer

local function extendTo(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

-- addLongLease also removes the leases that have ended.
local function addLongLease(lock, owner, ttl)
  if not floor or ttl <= floor then return end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now))
  redis.call('ZADD', KEYS[2], string.format('%d', now + ttl * 1000),
    string.format('%d %s %s', ttl, owner, lock))
  extendTo(KEYS[2], ttl)
end
-- Finds out whether this server wrote last, and from when on its memory is complete.
--
-- KEYS[2]   the long leases, see longlease.lua
-- ARGV[3]   1 if grants and renewals count only when they are in the append-only file (DurableAOF)
-- Expects   now, meta, setMeta
-- Provides  identify()  sets start and unknown, and the fields r, c and x if the server changed
--           start       when the memory begins, in microseconds; nil before identify
--           unknown     for how long from start leases may live that the memory does not contain,
--                       in milliseconds; nil before identify
-- Answer    none: the files after this one answer

local start, unknown

-- keptAll reports whether the server has restarted with all grants and renewals that count. It has
-- read the append-only file then, and not a snapshot, and has not been a replica: one that is
-- promoted may lack the last writes of the server that it replaces. If the file was switched on, or
-- written anew, since then, that can't be told any more.
local function keptAll()
  if ARGV[3] ~= '1' then return false end
  local info = redis.call('INFO', 'replication') .. redis.call('INFO', 'persistence')
  local lines = {'role:master', 'second_repl_offset:-1', 'aof_enabled:1', 'aof_rewrites:0'}
  for _, line in ipairs(lines) do
    if not string.find(info, '\n' .. line .. '\r\n', 1, true) then return false end
  end
  return true
end

local function identify()
  start, unknown = tonumber(meta[3]) or 0, tonumber(meta[4]) or 0
  local info = redis.call('INFO', 'server')
  if meta[2] and string.find(info, meta[2], 1, true) then return end
  if meta[2] and keptAll() then
    setMeta('r', string.match(info, 'run_id:(%w+)'))
    return
  end
  if meta[2] then
    -- The server restarted with its memory, or was promoted. Writes that were not persisted or
    -- replicated in time are lost.
    start, unknown = now, math.max(0, math.ceil((start - now) / 1000 + unknown))
    for _, lease in ipairs(
      redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now), '+inf')) do
      unknown = math.max(unknown, tonumber(string.match(lease, '^%d+')) or 0)
    end
  else
    -- The server is new, or restarted without its memory. The uptime is a difference of whole
    -- seconds, so it may be up to one second too long.
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
    start, unknown = now - math.max(uptime - 1, 0) * 1000000, 0
  end
  setMeta('c', start)
  setMeta('x', unknown)
  setMeta('r', string.match(info, 'run_id:(%w+)'))
end
-- Computes how much of the grace period is left.
--
-- KEYS      not used
-- ARGV[4]   the server was found to be the one that wrote last from this time on, and
-- ARGV[5]   this result is valid until then, both in microseconds, for TTLs of up to
-- ARGV[6]   ms
-- Expects   now, floor, maxTTL, setMeta, start, unknown, identify
-- Provides  grace(ttl)  for how many ms no lease with this TTL may be granted; if this is not
--                       positive, it may be granted now
--           checked()   if the server was identified, and leases of up to the floor may be
--                       granted, what follows the answers, as in fastpath.lua, without the token
-- Answer    none: the files after this one answer

local vouchedTTL = now >= tonumber(ARGV[4]) and now < tonumber(ARGV[5]) and tonumber(ARGV[6]) or 0

-- grace assumes that leases which the memory does not contain are no longer than the floor, or
-- than the requested TTL up to one minute.
local function grace(ttl)
  if not floor or ttl <= vouchedTTL then return 0 end
  if not start then identify() end
  if start > now then -- the clock was set back, so the recorded start is wrong
    start = now
    setMeta('c', start)
  end
  return math.ceil((start - now) / 1000
    + math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))
end

local function checked()
  if floor and start and grace(floor) <= 0 then return string.format('v %d %d', now, floor) end
end
-- Counts fencing tokens, and declares the keys of the request that is being served.
--
-- KEYS[1]   the server's memory, see memory.lua; field t is the last token
-- ARGV      not used
-- Expects   now, meta
-- Provides  absence                        after how long a waiter is removed that has not sent
--                                          its request again, in microseconds. Waiters send it
--                                          three times as often
--           lock, record, queue, requests  the keys of the present request, see full.lua
--           lastToken                      the last token that was used
--           exhausted()                    reports whether there are no more tokens
--           reserve(tokens)                takes that many tokens and returns the first
--           grantAnswer(token, tokens, others)  the answer to a granted request
-- Answer    none: the files after this one answer

local absence = 15000000
local lock, record, queue, requests
local lastToken = tonumber(meta[1]) or 0

-- Above 2^53 Lua would return the same token again and again. Only a wrong value that somebody
-- else wrote gets there. The comparison is negated because the value may be NaN.
local function exhausted() return not (lastToken < 9007199253692416) end

local function reserve(tokens)
  local token = math.max(lastToken + 1, now)
  lastToken = token + tokens - 1
  return token
end

local function grantAnswer(token, tokens, others)
  return string.format('g %d %d %d', token, tokens, others and 1 or 0)
end
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
-- Translates between the mode of a request and the value of the lock's key. The modes are x,
-- exclusive; s, shared; and a number, the size of a semaphore. The value is the owner if the hold
-- is exclusive, and the same for all holders of a shared lock or of a semaphore.
--
-- KEYS      lock
-- ARGV      not used
-- Expects   lock
-- Provides  valueOf(mode)        the value while several hold the lock in this mode
--           isMulti(value)       reports whether several may hold the lock
--           kindOf(mode)         the kind of lock, for people
--           kindOfValue(value)   likewise
--           lockValue()          the present value
-- Answer    none: the files after this one answer

local function valueOf(mode)
  return mode == 's' and 'snib:shared' or 'snib:slots:' .. mode
end

local function isMulti(value)
  return value == 'snib:shared' or string.sub(value, 1, 11) == 'snib:slots:'
end

local function kindOf(mode)
  return string.find(mode, '^%d') and 'a semaphore of ' .. mode or 'a lock'
end

local function kindOfValue(value)
  return kindOf(string.match(value, '^snib:slots:(%d+)$') or 'x')
end

-- lockValue returns false if the key does not exist, and nil and the key's type if it is not a
-- string.
local function lockValue()
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then return nil, redis.call('TYPE', lock).ok end
  return value
end
-- Reads and writes the values of the hashes record and requests: a time of 16 digits, in
-- microseconds, followed by a JSON object. Others may write to these keys too, so an object that
-- snib can't have written is treated as if it did not exist.
--
-- KEYS      requests
-- ARGV      not used
-- Expects   now, maxTTL, requests
-- Provides  newEntry(time, json)  an entry
--           entryTime(entry)      its time; 0, which is long over, if it has none
--           entryJSON(entry)      its object
--           parseRequest(json)    the request that a JSON object describes, or nil
--           parseHold(json)       the hold that a record describes, or nil
--           findRequest(owner)    the request of a waiter, and its entry, or nil
-- Answer    none: the files after this one answer

local function newEntry(at, json) return string.format('%016d', at) .. json end
local function entryTime(entry)
  return tonumber(string.match(entry, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')) or 0
end
local function entryJSON(entry) return string.sub(entry, 17) end

local function isText(value, pattern)
  return type(value) == 'string' and string.find(value, pattern)
end

local function parseRequest(json)
  local ok, r = pcall(cjson.decode, json)
  if not ok or type(r) ~= 'table' or type(r.owner) ~= 'string' or type(r.ttl) ~= 'number'
    or type(r.tokens) ~= 'number' then return end
  if not isText(r.id, '^%d+$')
    or not isText(r.mode, '^[xs]$') and not isText(r.mode, '^[1-9]%d*$') then return end
  if not isText(r.channel, '^snib%.c:[%w{}:]+$')
    or r.process and not isText(r.process, '^snib%.c:%w+$') then return end
  return r
end

local function parseEntry(entry) return parseRequest(entryJSON(entry)) end

-- findRequest also returns nil for a request that can't be true. serveQueue removes such a
-- request, so that it keeps nobody from the lock.
local function findRequest(owner)
  local entry = redis.call('HGET', requests, owner)
  local r = entry and parseEntry(entry)
  if not r or r.owner ~= owner or entryTime(entry) > now + 60000000 then return end
  if r.ttl < 1 or r.ttl > maxTTL or r.tokens < 1 or r.tokens > 1048576 then return end
  return r, entry
end

local function parseHold(json)
  local r = parseRequest(json)
  if r and type(r.token) == 'number' and type(r.since) == 'number' then return r end
end
-- Publishes hints to waiters and holders. A hint is the id of a request and a word. It grants and
-- ends nothing: its receiver asks the store. So an error, such as a missing permission, is
-- ignored.
--
-- KEYS      not used
-- ARGV      not used
-- Provides  wake(request)        word k: tells a waiter to send its request again
--           hint(request, word)  word w: tells a holder that another process waits
--                                word b: tells a holder that its hold may have been broken
--           isListening(request) reports whether a waiter's process listens to this server
-- Answer    none: the files after this one answer

local function isSharded(request) return string.find(request.channel, '{', 1, true) end

local function wake(request)
  redis.pcall(isSharded(request) and 'SPUBLISH' or 'PUBLISH', request.channel, request.id .. ' k')
end

local function hint(request, word)
  redis.pcall('PUBLISH', request.process or request.channel, request.id .. ' ' .. word)
end

-- The count that PUBLISH returns is no substitute: it comes too late, and it leaves out who
-- listens to a replica.
local function isListening(request)
  return redis.call('PUBSUB', isSharded(request) and 'SHARDNUMSUB' or 'NUMSUB',
    request.channel)[2] > 0
end
-- Reads and writes holds. An exclusive hold has a record of its own; the records of the holders
-- of a shared lock or semaphore are entries of one hash, by owner.
--
-- KEYS[2]   the long leases, see longlease.lua
-- KEYS      lock, record, queue
-- ARGV      not used
-- Expects   now, floor, addLongLease, extendTo, lock, record, queue; record.lua, mode.lua and
--           entry.lua
-- Provides  exclusiveHold()          the hold that the record describes, and the record's text
--           removeLongLease(hold)    removes the lease of a hold that has ended
--           removeEnded()            removes the ended holds of a shared lock or semaphore
--           hasRoom(mode, value)     reports whether another hold of this mode fits. The value is
--                                    that of the lock's key, or nil if it is not known
--           othersWait(channel)      reports whether another process than the channel's waits
--           writeHold(...)           writes a hold after hasRoom
-- Answer    none: the files after this one answer

local function exclusiveHold()
  local json = redis.pcall('GET', record)
  local hold = type(json) == 'string' and parseHold(json)
  if hold then return hold, json end
end

local function removeLongLease(hold)
  if floor and hold and hold.ttl > floor then
    redis.call('ZREM', KEYS[2], string.format('%d %s %s', hold.ttl, hold.owner, lock))
  end
end

-- removeEnded returns how many holds are left, and when the first and the last of them end.
local function removeEnded()
  local all, left, first, final = redis.call('HGETALL', record), 0, 1e16, 0
  for i = 1, #all, 2 do
    local expiry = entryTime(all[i + 1])
    if expiry <= now then
      redis.call('HDEL', record, all[i])
    else
      left, first, final = left + 1, math.min(first, expiry), math.max(final, expiry)
    end
  end
  if left == 0 then redis.call('DEL', lock, record) end
  return left, first, final
end

local function hasRoom(mode, value)
  if value == nil then value = lockValue() end
  if not value then return value == false end
  if mode == 'x' or value ~= valueOf(mode) then return isMulti(value) and removeEnded() == 0 end
  return mode == 's' or redis.call('HLEN', record) < tonumber(mode)
    or removeEnded() < tonumber(mode)
end

-- othersWait looks at the first 32 waiters. If these are all of the channel's process, and more
-- may follow, it returns true without looking at them.
local function othersWait(channel)
  local waiters = redis.call('ZRANGE', queue, 0, 31)
  for i = 1, #waiters do
    local request = findRequest(waiters[i])
    if request and request.channel ~= channel then return true end
  end
  return #waiters == 32
end

local function writeHold(token, since, owner, mode, ttl, rest)
  addLongLease(lock, owner, ttl)
  if mode == 'x' then
    redis.call('SET', lock, owner, 'PX', ttl)
    writeRecord(token, since, ttl, rest)
    return
  end
  if redis.call('SET', lock, valueOf(mode), 'PX', ttl, 'NX') then redis.call('DEL', record) end
  redis.call('HSET', record, owner, newEntry(now + ttl * 1000, recordJSON(token, since, rest)))
  extendTo(lock, ttl)
  extendTo(record, ttl)
end
-- Serves the queue of a lock in order of arrival.
--
-- KEYS      queue, requests
-- ARGV      not used
-- Expects   now, absence, extendTo, grace, queue, requests; token.lua, entry.lua, hint.lua and
--           hold.lua
-- Provides  dequeue(owner)          removes a waiter
--           firstWaiter()           the owner at the head of the queue, or nil
--           yieldLeft()             for how many ms waiters must leave the lock free, or nil
--           yieldIfDue(hold, every) makes waiters leave the lock free for a moment
--           serveQueue(self, value) grants the lock to waiters for as long as that is possible. The
--                                   value is that of the lock's key, or nil if it is not known
-- Answer    none: the files after this one answer

local function dequeue(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', requests, owner)
end

-- While yieldMark is at the head of the queue, the lock is left to clients that are not in the
-- queue: those of other libraries, which poll. Its score is the end of that time, negative so that
-- no waiter comes before it. It has no request, so an earlier version removes it.
local yieldMark, yieldTime = 'snib:yield', 300

local function firstWaiter()
  local first = redis.call('ZRANGE', queue, 0, 1)
  if first[1] == yieldMark then return first[2] end
  return first[1]
end

-- yieldLeft ignores a time that is too far ahead: the clock was set back.
local function yieldLeft()
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if first[1] ~= yieldMark then return end
  local left = math.ceil((-first[2] - now) / 1000)
  return left > 0 and left <= yieldTime and left or nil
end

-- yieldIfDue is called with a hold that has just ended. It does nothing unless a multiple of every
-- ms, by the clock, lies in the hold. Holds follow each other without a gap while others wait, so
-- that happens once in every ms. It wakes the first waiter that it can reach, which then asks again
-- when the time is over.
local function yieldIfDue(hold, every)
  every = (tonumber(every) or 0) * 1000
  if not hold or every == 0 or math.floor(hold.since / every) >= math.floor(now / every) then
    return
  end
  redis.call('ZADD', queue, string.format('%d', -now - yieldTime * 1000), yieldMark)
  extendTo(queue, yieldTime)
  for first in firstWaiter do
    local request, entry = findRequest(first)
    if request and entryTime(entry) + absence >= now
      and (request.blind or isListening(request)) then return wake(request) end
    dequeue(first)
  end
end

-- serveQueue skips waiters that it can't reach. It wakes each waiter that it grants the lock,
-- except the owner self, whose request is being served: it returns the answer to that one.
local function serveQueue(self, value)
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first or first == yieldMark and yieldLeft() then return end
    local request, entry = findRequest(first)
    if not request or entryTime(entry) + absence < now then
      dequeue(first)
    elseif exhausted() then
      return
    elseif not hasRoom(request.mode, value) or grace(request.ttl) > 0 then
      return
    else
      -- The wake-up comes first: while the slot is moving, Redis may break off the rest. A waiter
      -- that listens to another server sends its request again, and is served then.
      if first ~= self then wake(request) end
      dequeue(first)
      if first == self or request.blind or isListening(request) then
        local token = reserve(request.tokens)
        local answer = grantAnswer(token, request.tokens, othersWait(request.channel))
        writeHold(token, now, first, request.mode, request.ttl, string.sub(entry, 18))
        if first == self then return answer end
        -- The waiter sends its request again, and the answer is the grant that it has.
        if request.mode == 'x' then return end -- no other hold fits
        value = nil
      end
    end
  end
end
-- Acquires a lock, or puts the request into the queue.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, mode, TTL in ms, number of tokens, 1 to wait in the queue, the request's JSON
--           without its opening brace
-- Expects   all files before this one
-- Provides  acquire(owner, mode, ttl, tokens, waits, rest)
-- Answer    g, q, h, e or k, see full.lua

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

-- enqueue adds a waiter to the end of the queue unless it is there, and notes that it is alive.
-- It reports whether the waiter is new, and whether it is alone, and returns its channel.
local function enqueue(owner, rest)
  local tail = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  local place = math.max(now, tail and tonumber(tail) + 1 or 0)
  local new = redis.call('ZADD', queue, 'NX', string.format('%d', place), owner) == 1
  redis.call('HSET', requests, owner, newEntry(now, '{' .. rest))
  redis.call('PEXPIRE', queue, absence / 500)
  redis.call('PEXPIRE', requests, absence / 500)
  return new, not tail, parseRequest('{' .. rest).channel
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
  local wait = grace(ttl)
  if wait > 0 then
    local value = lockValue()
    if value and value ~= owner and waits ~= '1' and not hasRoom(mode) then
      return 'h ' .. timeLeft(value, mode)
    end
    return 'e ' .. wait
  end
  if exhausted() then
    error('the last fencing token, field t of ' .. KEYS[1] .. ', is ' .. meta[1]
      .. ', above which none can be counted', 0)
  end
  local value, keyType = currentValue(mode)
  if value == nil then return 'k a ' .. keyType end
  local answer = value and reacquire(value, owner, mode, ttl, tokens, rest)
  if answer then return answer end
  local kind = conflictingKind(value, mode)
  if kind then return 'k ' .. kind end
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
-- Releases a hold.
--
-- KEYS[1]   the server's memory, see memory.lua
-- KEYS      lock, record, queue, requests
-- ARGV[3]   1 with DurableAOF, see full.lua
-- ARGV      owner, the time in ms for which the hold must have lasted (MinHold), token, how often
--           to leave the lock free for other libraries, in ms, or 0 (YieldToForeign)
-- Expects   all files before this one
-- Provides  wakeFirst()             makes the head of the queue send its request again
--           removeShared(field)     removes one holder of a shared lock or semaphore
--           answerLost()            serves the queue and returns the answer l
--           findHold(owner, token)  finds a hold
--           release(owner, minHold, token, yieldEvery)
-- Answer    o or l, see full.lua

-- wakeFirst is called after a change of the time for which the head of the queue has to wait.
local function wakeFirst()
  local first = firstWaiter()
  local request = first and findRequest(first)
  if request then wake(request) end
end

-- keepHold keeps a released hold until it has lasted for minHold ms. It returns false if that
-- time is over. Json is the hold's record. If shared is set, others may hold the lock too, and
-- the record is the owner's entry.
local function keepHold(owner, json, minHold, shared)
  local expiry = parseHold(json).since + minHold * 1000
  if expiry <= now then return false end
  local ms = math.ceil((expiry - now) / 1000)
  if shared then
    redis.call('HDEL', record, owner)
    redis.call('HSET', record, 'snib:kept:' .. owner, newEntry(expiry, json))
    local _, _, final = removeEnded()
    ms = math.ceil((final - now) / 1000)
    redis.call('PEXPIRE', lock, ms)
  else
    redis.call('SET', lock, 'snib:kept', 'PX', ms)
  end
  redis.call('PEXPIRE', record, ms) -- which may be sooner than the lease would have ended
  wakeFirst()
  return true
end

-- removeShared is given hold and yieldEvery only if the holder itself releases.
local function removeShared(field, hold, yieldEvery)
  redis.call('HDEL', record, field)
  if redis.call('EXISTS', record) == 0 then
    redis.call('DEL', lock)
    yieldIfDue(hold, yieldEvery)
  end
  serveQueue()
  return 'o'
end

-- findHold reports whether the hold with this token still exists. It returns the record, if there
-- is one, as text and parsed, and whether others may hold the lock too.
local function findHold(owner, token)
  local value = lockValue()
  if value and isMulti(value) then
    local entry = redis.call('HGET', record, owner)
    local hold = entry and entryTime(entry) > now and parseHold(entryJSON(entry))
    return hold and string.format('%d', hold.token) == token, entry and entryJSON(entry), hold, true
  end
  local hold, json = exclusiveHold()
  if value ~= owner or not hold or hold.owner ~= owner then return value == owner end
  return string.format('%d', hold.token) == token, json, hold, false
end

-- answerLost is for a request whose hold does not exist. An earlier try of the same request may
-- have ended the hold and then been broken off by Redis, because its slot is moving, before it
-- served the queue. With DurableAOF it also writes something: WAITAOF waits for what this
-- connection has written, and so for all that was written before that.
local function answerLost()
  if ARGV[3] == '1' and meta[1] then redis.call('HSET', KEYS[1], 't', meta[1]) end
  serveQueue()
  return 'l'
end

local function release(owner, minHold, token, yieldEvery)
  local found, json, hold, shared = findHold(owner, token)
  if not found then return answerLost() end
  removeLongLease(hold)
  minHold = tonumber(minHold)
  if minHold > 0 and json and keepHold(owner, json, minHold, shared) then return 'o' end
  if shared then return removeShared(owner, hold, yieldEvery) end
  redis.call('DEL', lock, record)
  yieldIfDue(hold, yieldEvery)
  serveQueue(nil, false)
  return 'o'
end
-- Tells a holder whether it still has its hold, and whether another process waits. It writes the
-- record of the hold if there is none.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token, the channel of the holder's process; then, if the record may be missing,
--           the TTL in ms, the age of the hold in microseconds, and the request's JSON without its
--           opening brace
-- Expects   now, othersWait, findHold, writeRecord
-- Provides  check(owner, token, channel, ttl, age, rest)
-- Answer    l, w or o, see full.lua

local function check(owner, token, channel, ttl, age, rest)
  local found, json = findHold(owner, token)
  if not found then return 'l' end
  if rest and not json then writeRecord(token, now - age, ttl, rest) end
  return othersWait(channel) and 'w' or 'o'
end
-- Changes the label of a hold.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token, the label as a JSON string
-- Expects   record, entry.lua, findHold
-- Provides  setLabel(owner, token, label)
-- Answer    o or l, see full.lua

-- withLabel changes a record. The label is the last field of a record that has one. No other text
-- of a record contains these quotes, because JSON escapes them.
local function withLabel(json, label)
  local at = string.find(json, ',"label":"', 1, true)
  return string.sub(json, 1, at and at - 1 or -2) .. ',"label":' .. label .. '}'
end

local function setLabel(owner, token, label)
  local found, json, _, shared = findHold(owner, token)
  if not found then return 'l' end
  if not json then return 'o' end -- another client has deleted the record
  if shared then
    local expiry = entryTime(redis.call('HGET', record, owner))
    redis.call('HSET', record, owner, newEntry(expiry, withLabel(json, label)))
  else
    redis.call('SET', record, withLabel(json, label), 'KEEPTTL')
  end
  return 'o'
end
-- Takes back a request that its process has given up: the place in the queue, or the hold if it
-- was granted. A later request of the same owner is left alone.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, the channel of the process, the id of the request
-- Expects   all files before this one
-- Provides  withdraw(owner, process, id)
-- Answer    o

local function withdraw(owner, process, id)
  local function isGivenUp(request)
    return request and (request.process or request.channel) == process and request.id == id
  end
  local first = firstWaiter() == owner
  if isGivenUp((findRequest(owner))) then dequeue(owner) end
  local value = lockValue()
  if value and isMulti(value) then
    local entry = redis.call('HGET', record, owner)
    local hold = entry and entryTime(entry) > now and parseHold(entryJSON(entry))
    if isGivenUp(hold) then
      removeLongLease(hold)
      return removeShared(owner)
    end
  elseif value == owner then
    local hold = exclusiveHold()
    -- Only the first request of an owner is granted a hold without a record.
    if not hold or hold.owner ~= owner or isGivenUp(hold) then
      removeLongLease(hold)
      redis.call('DEL', lock, record)
    end
  end
  serveQueue() -- waiters behind the request may fit now
  if first then wakeFirst() end
  return 'o'
end
-- Names the keys and channels that Redisson has for a lock. A script can't list these keys among
-- its own, because they need not exist or lie in the lock's slot, and because the user may lack
-- the right to them. So it calls them by redis.pcall, and goes without them if that fails.
--
-- KEYS      not used
-- ARGV      not used
-- Expects   nothing
-- Provides  redissonName(prefix, name)  the key or channel that begins with prefix
-- Answer    none: the files after this one answer

local function redissonName(prefix, name)
  return prefix .. ':' .. (string.find(name, '{', 1, true) and name or '{' .. name .. '}')
end
-- Ends a hold by force, and hints that to its holder.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token; the token is 0 if another library holds the lock. The owner of a hold of
--           Redisson is the field of its hash
-- Expects   all files before this one
-- Provides  breakHold(owner, token)
-- Answer    o, or l if that hold does not exist

-- breakRedisson does what Redisson does when a hold of its ends, and wakes its waiters.
local function breakRedisson(field)
  if not string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+')
    or redis.call('HDEL', lock, field) == 0 then return answerLost() end
  local mode = redis.call('HGET', lock, 'mode')
  local wasWriter = string.sub(field, -6) == ':write'
  if redis.call('HLEN', lock) <= (mode and 1 or 0) then
    redis.call('DEL', lock)
  elseif wasWriter then -- the thread reads, too
    redis.call('HSET', lock, 'mode', 'read')
  end
  local channel = redissonName('redisson_lock__channel', lock)
  local head = redis.pcall('LINDEX', redissonName('redisson_lock_queue', lock), 0)
  if mode then
    redis.pcall('PUBLISH', redissonName('redisson_rwlock', lock), wasWriter and 1 or 0)
  else
    redis.pcall('PUBLISH', type(head) == 'string' and channel .. ':' .. head or channel, 0)
  end
  serveQueue()
  return 'o'
end

local function breakHold(owner, token)
  local value, keyType = lockValue()
  if keyType == 'hash' and token == '0' then return breakRedisson(owner) end
  if value and isMulti(value) then
    for _, field in ipairs({owner, 'snib:kept:' .. owner}) do
      local entry = redis.call('HGET', record, field)
      local hold = entry and entryTime(entry) > now and parseHold(entryJSON(entry))
      if hold and string.format('%d', hold.token) == token then
        removeLongLease(hold)
        hint(hold, 'b')
        return removeShared(field)
      end
    end
    return answerLost()
  end
  local hold = exclusiveHold()
  local ours = hold and hold.owner == owner and (value == owner or value == 'snib:kept')
  if (ours and string.format('%d', hold.token) or value == owner and '0') ~= token then
    return answerLost()
  end
  redis.call('DEL', lock, record)
  if ours then
    removeLongLease(hold)
    hint(hold, 'b')
  end
  serveQueue()
  return 'o'
end
-- Serves a batch of requests of any kind. A request that fails does not keep the others of its
-- batch from being served.
--
-- KEYS[1]  the server's memory, see memory.lua
-- KEYS[2]  the long leases, see longlease.lua
-- KEYS     then for each request: lock, its record, its queue, the requests of its waiters
-- ARGV[1]  the minimum grace period, and
-- ARGV[2]  the longest TTL, see limits.lua
-- ARGV[3]  1 with DurableAOF, see identity.lua
-- ARGV[4]  to ARGV[6]: see grace.lua
-- ARGV     then for each request: its code, the owner, the number of further arguments, and these.
--          The code is that of a function below, whose arguments stand in its own file
-- Expects  all files before this one
-- Answer   one text for each request:
--            g TOKEN TOKENS WANTED  granted; WANTED is 1 if another process waits
--            q LEFT PLACE           in the queue. LEFT is for how many ms the present holders keep
--                                   the waiter out. PLACE is 1 at the head of the queue, 2 there
--                                   if another library holds the lock, which does not announce
--                                   its release, and 0 elsewhere
--            h LEFT                 held; LEFT is -1 if the lock's key does not expire
--            e LEFT                 nothing is granted for LEFT ms: the grace period
--            k KIND                 the name is in use as KIND
--            o                      done
--            w                      the hold exists, and another process waits
--            l                      the hold does not exist
--            x TEXT                 an error of Redis
--          then, if the server was checked, "v NOW TTL TOKEN", see fastpath.lua

local handlers = {A = acquire, R = release, w = withdraw, b = breakHold, c = check,
  L = setLabel}
local answers, arg = {}, 7
for k = 3, #KEYS, 4 do
  lock, record, queue, requests = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local n = tonumber(ARGV[arg + 1])
  local ok, answer = pcall(handlers[ARGV[arg]], unpack(ARGV, arg + 2, arg + 1 + n))
  if not ok then
    answer = 'x ' .. (type(answer) == 'table' and answer.err or tostring(answer))
  end
  answers[#answers + 1] = answer
  arg = arg + 2 + n
end
if not exhausted() and lastToken ~= (tonumber(meta[1]) or 0) then setMeta('t', lastToken) end
saveMeta()
local vouched = checked()
if vouched then answers[#answers + 1] = string.format('%s %d', vouched, lastToken) end
return answers
