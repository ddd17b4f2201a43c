package redislock

// The scripts are Lua that runs in Redis. Redis knows a script by its digest, so only the first
// use on each server sends the text.
//
// The scripts are the backend's state machine; docs/backends/redislock.md describes the keys
// that they write. They use nothing beyond Redis 6.2, go by the server's clock only, and name
// all their keys, which lie in one slot.
const (
	// fastPathScript acquires free locks and releases exclusive ones, as long as nobody waits
	// for them, which is the common case. It serves many requests with few Redis commands, and
	// leaves the other cases to fullScript.
	fastPathScript = clock + fastPathBody

	// fullScript serves any request. One that fails does not keep the others of its batch from
	// being served.
	fullScript = clock + limits + memory + identity + fullBody

	// extendScript extends only the locks' keys of exclusive leases, all with the same TTL.
	// renewScript extends leases of any kind with all that belongs to them.
	extendScript = extendBody
	renewScript  = clock + limits + memory + renewBody

	// forgetScript ends the grace period: it declares that this server wrote last, and that its
	// memory is complete.
	forgetScript = `
-- KEYS[1]: what the store knows of itself; KEYS[2]: the leases that outlast the floor.
redis.call('HSET', KEYS[1], 'r', string.match(redis.call('INFO', 'server'), 'run_id:(%w+)'), 'c', 0, 'x', 0)
redis.call('DEL', KEYS[2])
return {'o'}
`

	// snapshotScript reads locks. It writes nothing.
	snapshotScript = `
-- KEYS: for each lock: the lock, its record, its queue, the requests of those who wait.
local time = redis.call('TIME')
local answers = {}
for k = 1, #KEYS, 4 do
  local type = redis.call('TYPE', KEYS[k]).ok
  local seen = {type = type, left = redis.call('PTTL', KEYS[k]), now = string.format('%d', time[1] * 1000000 + time[2]),
    recorded = redis.call('EXISTS', KEYS[k + 1]) == 1}
  if type == 'string' then
    seen.value = redis.call('GET', KEYS[k])
    local record = redis.call('TYPE', KEYS[k + 1]).ok
    if record == 'string' then
      seen.record = redis.call('GET', KEYS[k + 1])
    elseif record == 'hash' then
      seen.records = redis.call('HVALS', KEYS[k + 1])
    end
  end
  local line = redis.call('ZRANGE', KEYS[k + 2], 0, -1, 'WITHSCORES')
  if #line > 0 then
    seen.line, seen.requests = {}, {}
    for i = 1, #line, 2 do
      local request = redis.call('HGET', KEYS[k + 3], line[i])
      if request then
        table.insert(seen.line, line[i + 1])
        table.insert(seen.requests, request)
      end
    end
  end
  table.insert(answers, cjson.encode(seen))
end
return answers
`
)

// clock reads the server's time, in microseconds.
const clock = `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
`

// limits reads the floor of the grace period and the longest TTL, in ms, from ARGV[1] and
// ARGV[2]. Without failover-grace floor is nil.
const limits = `
local floor, maxTTL = tonumber(ARGV[1]), tonumber(ARGV[2])
`

// memory reads what the store knows about itself from KEYS[1], a hash. KEYS[2] is a sorted set
// of the live leases that are longer than the floor of the grace period.
//
// The fields of the hash are: t, the last fencing token; r, the run_id of the server that wrote
// last; c, when the server's memory begins; and x, for how long from then leases may live that
// it does not know of. The sorted set has "TTL OWNER LOCK" by the lease's end. Times are in
// microseconds, TTLs in milliseconds.
//
// The code expects the locals floor, the minimum grace period in ms or nil, and maxTTL.
const memory = `
local known = redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x')
local changed = {}

local function note(field, value)
  changed[#changed + 1] = field
  changed[#changed + 1] = type(value) == 'number' and string.format('%d', value) or value
end

local function save()
  if #changed > 0 then redis.call('HSET', KEYS[1], unpack(changed)) end
end

local function outlast(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

-- lasts notes a lease that outlasts the floor, and forgets those that are over.
local function lasts(lock, owner, ttl)
  if not floor or ttl <= floor then return end
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now))
  redis.call('ZADD', KEYS[2], string.format('%d', now + ttl * 1000), string.format('%d %s %s', ttl, owner, lock))
  outlast(KEYS[2], ttl)
end
`

// identity finds out whether this is the server that wrote last, and since when its memory is
// complete.
const identity = `
local start, unknown
local function identify()
  start, unknown = tonumber(known[3]) or 0, tonumber(known[4]) or 0
  local info = redis.call('INFO', 'server')
  if known[2] and string.find(info, known[2], 1, true) then return end
  if known[2] then -- restarted with its memory, or promoted: what was not written or replicated in time is lost
    start, unknown = now, math.max(0, math.ceil((start - now) / 1000 + unknown))
    for _, lease in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now), '+inf')) do
      unknown = math.max(unknown, tonumber(string.match(lease, '^%d+')) or 0)
    end
  else -- restarted without memory, or new
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) -- up to a second too much: a difference of whole ones
    start, unknown = now - math.max(uptime - 1, 0) * 1000000, 0
  end
  note('c', start)
  note('x', unknown)
  note('r', string.match(info, 'run_id:(%w+)'))
end

-- grace returns for how many ms nothing may be granted, if that is positive. Leases that the memory does not know of are taken to be no
-- longer than the floor, or than what is asked for now, up to a minute.
local function grace(ttl)
  if not floor then return 0 end
  if not start then identify() end
  if start > now then -- the clock was set back: what it said of the beginning is worth nothing
    start = now
    note('c', start)
  end
  return math.ceil((start - now) / 1000 + math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))
end
`

// fastPathBody answers each request with one of these:
//
//	o                 done
//	g TOKEN TOKENS 0  granted
//	h LEFT            held for another LEFT ms
//	?                 send the request to fullScript
//
// After those it may answer "v NOW TTL": at NOW, this server was found to be the one that wrote
// last, and it may grant. A client that learned this a moment ago need not have it checked
// again, for TTLs up to TTL.
const fastPathBody = `
-- KEYS[1]: what the store knows of itself; the locks to release, and their records; the queues of all locks; the locks to take, and
-- their records.
-- ARGV: the floor of the grace and the longest TTL; the time from which and the one until which it is known whose memory this is; how many
-- locks to release, and to take; for each of the first its owner and token; for each of the second its owner, TTL, tokens, and record;
-- the longest of the TTLs. None is longer than the floor.
local frees, takes = tonumber(ARGV[5]), tonumber(ARGV[6])
local answers, queues = {}, 1 + 2 * frees
local waited = redis.call('EXISTS', unpack(KEYS, queues + 1, queues + frees + takes)) > 0

if frees > 0 then
  local held, gone = redis.call('MGET', unpack(KEYS, 2, 1 + 2 * frees)), {} -- the locks, and then the records
  for i = 1, frees do
    local owner, head = ARGV[5 + 2 * i], '{"token":' .. ARGV[6 + 2 * i] .. ','
    if held[i] == owner and held[frees + i] and string.sub(held[frees + i], 1, #head) == head
      and not (waited and redis.call('EXISTS', KEYS[queues + i]) == 1) then
      gone[#gone + 1] = KEYS[1 + i]
      gone[#gone + 1] = KEYS[1 + frees + i]
      answers[i] = 'o'
    else
      answers[i] = '?'
    end
  end
  if #gone > 0 then redis.call('DEL', unpack(gone)) end
end
if takes == 0 then return answers end

local known = redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x')
local vouched, refused
if now < tonumber(ARGV[3]) or now >= tonumber(ARGV[4]) then
  local ttl, start, unknown = tonumber(ARGV[#ARGV]), tonumber(known[3]), tonumber(known[4])
  if start and unknown and known[2] and string.find(redis.call('INFO', 'server'), known[2], 1, true)
    and start + 1000 * math.min(math.max(unknown, ARGV[1], math.min(ttl, 60000)), ARGV[2]) <= now then
    vouched = string.format('v %d %d', now, ttl)
  else
    refused = true -- tradeScript says why
  end
end

local last = tonumber(known[1]) or 0
if not (last < 9007199253692416) then refused = true end
local locks, arg, won, sum = queues + frees + takes, 6 + 2 * frees, {}, 0
for i = 1, takes do
  local lock, owner = KEYS[locks + i], ARGV[arg + 1]
  answers[frees + i] = '?'
  if not refused then
    if not redis.call('SET', lock, owner, 'PX', ARGV[arg + 2], 'NX') then
      local v = redis.pcall('GET', lock)
      if type(v) == 'string' and v ~= owner and string.sub(v, 1, 5) ~= 'snib:' then
        answers[frees + i] = 'h ' .. redis.call('PTTL', lock)
      end
    elseif waited and redis.call('EXISTS', KEYS[queues + frees + i]) == 1 then
      redis.call('DEL', lock) -- somebody came before
    else
      won[#won + 1] = i
      sum = sum + ARGV[arg + 3]
    end
  end
  arg = arg + 4
end
if #won > 0 then
  local token = math.max(last + 1, now)
  redis.call('HSET', KEYS[1], 't', string.format('%d', token + sum - 1))
  local since, ttl, lives = string.format('%d', now), nil, nil
  for w = 1, #won do
    local i = won[w]
    arg = 6 + 2 * frees + 4 * (i - 1)
    if ARGV[arg + 2] ~= ttl then
      ttl = ARGV[arg + 2]
      lives = string.format('%d', 4 * ttl + 60000)
    end
    local tokens, first = ARGV[arg + 3], string.format('%d', token)
    redis.call('SET', KEYS[locks + takes + i], '{"token":' .. first .. ',"since":' .. since .. ',' .. ARGV[arg + 4], 'PX', lives)
    answers[frees + i] = 'g ' .. first .. ' ' .. tokens .. ' 0'
    token = token + tokens
  end
end
answers[#answers + 1] = vouched
return answers
`

// fullBody answers each request with a letter and its arguments:
//
//	g TOKEN TOKENS WANTED  granted; WANTED is 1 if another process waits
//	q LEFT PLACE           in the queue; LEFT is the present holders' time in ms; PLACE is
//	                       1 at the head of the queue, 2 there if a foreign client, which
//	                       does not announce a release, holds the lock, and else 0
//	h LEFT                 held; LEFT is -1 if the lock's key has no end
//	e LEFT                 nothing is granted for LEFT ms: the server restarted or was promoted
//	k WHAT                 the name is in use as WHAT
//	o                      done
//	w                      another process waits
//	l                      there is no such hold
//	x TEXT                 an error of Redis
//
// It publishes hints to processes, which grant and end nothing: the id of a request, and a
// word. Word k tells a waiter to send again, w tells a holder that another process waits, and b
// that its hold may have been broken.
const fullBody = `
-- KEYS: what the store knows of itself; the leases that outlast the floor; then for each request: the lock, its record, its queue, the
-- requests in it.
-- ARGV: the floor of the grace, the longest TTL; then for each request: its code, the owner, how many more arguments, and these.
local absence = 15000000 -- after how long a waiter that does not stir is forgotten; it asks every third of that
local lock, record, queue, requests -- of the present request
local last = tonumber(known[1]) or 0

-- exhausted reports whether tokens can't go on: above 2^53 Lua would give the same one again and again. Only a wild value that somebody
-- has written gets there.
local function exhausted() return not (last < 9007199253692416) end

local function reserve(tokens)
  local token = math.max(last + 1, now)
  last = token + tokens - 1
  return token
end

local function granted(token, tokens, others)
  return string.format('g %d %d %d', token, tokens, others and 1 or 0)
end

local function inscription(token, since, rest)
  return string.format('{"token":%d,"since":%d,', token, since) .. rest
end

-- inscribe writes the record of an exclusive hold. It outlives the lock's key, so that not each renewal has to extend it.
local function inscribe(token, since, ttl, rest)
  redis.call('SET', record, inscription(token, since, rest), 'PX', 4 * ttl + 60000)
end

local function fits(mode) -- the value of the lock's key while mode has it; exclusive holds have the owner there
  return mode == 's' and 'snib:shared' or 'snib:slots:' .. mode
end

local function several(value) return value == 'snib:shared' or string.sub(value, 1, 11) == 'snib:slots:' end

local function name(mode)
  return string.find(mode, '^%d') and 'a semaphore of ' .. mode or 'a lock'
end

local function nameOf(value) return name(string.match(value, '^snib:slots:(%d+)$') or 'x') end

-- value returns the value of the lock's key, or false, or nil and the type of what is no lock.
local function value()
  local v = redis.pcall('GET', lock)
  if type(v) == 'table' then return nil, redis.call('TYPE', lock).ok end
  return v
end

-- An entry of a hash is a time of 16 digits and a JSON object. What has no time is long over.
local function entry(at, json) return string.format('%016d', at) .. json end
local function at(e) return tonumber(string.match(e, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')) or 0 end
local function json(e) return string.sub(e, 17) end

local function text(v, pattern) return type(v) == 'string' and string.find(v, pattern) end

-- parse returns what the JSON object of a request or a hold says, or nil if it is none that we have written: others may write, too.
local function parse(json)
  local ok, r = pcall(cjson.decode, json)
  if not ok or type(r) ~= 'table' or type(r.owner) ~= 'string' or type(r.ttl) ~= 'number' or type(r.tokens) ~= 'number' then return end
  if not text(r.id, '^%d+$') or not text(r.mode, '^[xs]$') and not text(r.mode, '^[1-9]%d*$') then return end
  if not text(r.channel, '^snib%.c:[%w{}:]+$') or r.process and not text(r.process, '^snib%.c:%w+$') then return end
  return r
end

local function decode(e) return parse(json(e)) end

-- requestOf returns the request of an owner, and its entry. It returns nil if there is none, or none that can be true: settle
-- forgets such, so that they keep nobody from the lock.
local function requestOf(owner)
  local e = redis.call('HGET', requests, owner)
  local r = e and decode(e)
  if not r or r.owner ~= owner or at(e) > now + 60000000 then return end
  if r.ttl < 1 or r.ttl > maxTTL or r.tokens < 1 or r.tokens > 1048576 then return end
  return r, e
end

-- holding returns what the record of a hold says, or nil.
local function holding(json)
  local r = parse(json)
  if r and type(r.token) == 'number' and type(r.since) == 'number' then return r end
end

local function sharded(r) return string.find(r.channel, '{', 1, true) end

-- wake tells who waits to ask again. If that is not allowed, they find out for themselves.
local function wake(r) redis.pcall(sharded(r) and 'SPUBLISH' or 'PUBLISH', r.channel, r.id .. ' k') end

-- hint tells a holder a word.
local function hint(r, word) redis.pcall('PUBLISH', r.process or r.channel, r.id .. ' ' .. word) end

-- hears reports whether who waits listens to this server. The count that PUBLISH returns would say it too late: who listens to a
-- replica hears what is published and is not counted.
local function hears(r)
  return redis.call('PUBSUB', sharded(r) and 'SHARDNUMSUB' or 'NUMSUB', r.channel)[2] > 0
end

-- inscribed returns the record of the exclusive hold whose owner is v, and its text, or nil.
local function inscribed()
  local had = redis.pcall('GET', record)
  local r = type(had) == 'string' and holding(had)
  if r then return r, had end
end

-- forget takes a lease that has ended out of those that outlast the floor.
local function forget(r)
  if floor and r and r.ttl > floor then redis.call('ZREM', KEYS[2], string.format('%d %s %s', r.ttl, r.owner, lock)) end
end

-- prune forgets the holds of a shared lock or semaphore that have ended, and returns how many are left, and the first and
-- the last end.
local function prune()
  local all, left, first, final = redis.call('HGETALL', record), 0, 1e16, 0
  for i = 1, #all, 2 do
    local e = at(all[i + 1])
    if e <= now then
      redis.call('HDEL', record, all[i])
    else
      left, first, final = left + 1, math.min(first, e), math.max(final, e)
    end
  end
  if left == 0 then redis.call('DEL', lock, record) end
  return left, first, final
end

-- admits reports whether the present holders leave room.
local function admits(mode)
  local v = value()
  if not v then return v == false end
  if mode == 'x' or v ~= fits(mode) then return several(v) and prune() == 0 end
  return mode == 's' or redis.call('HLEN', record) < tonumber(mode) or prune() < tonumber(mode)
end

-- wanted reports whether a process other than that of channel waits. In a long queue of one process's own it may err.
local function wanted(channel)
  local line = redis.call('ZRANGE', queue, 0, 31)
  for i = 1, #line do
    local r = requestOf(line[i])
    if r and r.channel ~= channel then return true end
  end
  return #line == 32
end

-- write makes a hold of what admits lets in.
local function write(token, since, owner, mode, ttl, rest)
  lasts(lock, owner, ttl)
  if mode == 'x' then
    redis.call('SET', lock, owner, 'PX', ttl)
    inscribe(token, since, ttl, rest)
    return
  end
  if redis.call('SET', lock, fits(mode), 'PX', ttl, 'NX') then redis.call('DEL', record) end
  redis.call('HSET', record, owner, entry(now + ttl * 1000, inscription(token, since, rest)))
  outlast(lock, ttl)
  outlast(record, ttl)
end

local function leave(owner)
  redis.call('ZREM', queue, owner)
  redis.call('HDEL', requests, owner)
end

-- settle grants to those who wait for as long as that is possible. Who can't be reached is passed over. The owner self is
-- not told: its answer is returned.
local function settle(self)
  while true do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then return end
    local r, e = requestOf(first)
    if not r or at(e) + absence < now then
      leave(first)
    elseif exhausted() then
      return
    elseif not admits(r.mode) or grace(r.ttl) > 0 then
      return
    else
      leave(first)
      if first == self or r.blind or hears(r) then
        local token = reserve(r.tokens)
        local answer = granted(token, r.tokens, wanted(r.channel))
        write(token, now, first, r.mode, r.ttl, string.sub(e, 18))
        if first == self then return answer end
        wake(r) -- it asks again, and is granted what it has
        if r.mode == 'x' then return end -- nobody else fits
      else
        wake(r) -- if it listens to another server, it asks again
      end
    end
  end
end

-- again answers an owner that holds the lock already, or returns nil.
local function again(v, owner, mode, ttl, tokens, rest)
  local had
  if mode == 'x' then
    if v ~= owner then return end
    had = inscribed()
  else
    local e = v == fits(mode) and redis.call('HGET', record, owner)
    if not e or at(e) <= now then return end
    had = holding(json(e))
  end
  leave(owner)
  local token, since = nil, now
  if had and had.owner == owner then
    token, since, tokens = had.token, had.since, had.tokens
    rest = string.gsub(rest, '"tokens":%d+', string.format('"tokens":%d', tokens), 1)
  else
    token = reserve(tokens)
  end
  write(token, since, owner, mode, ttl, rest)
  return granted(token, tokens, wanted(parse('{' .. rest).channel))
end

-- left returns for how many ms the present holders keep mode out.
local function left(v, mode)
  if v and several(v) then
    local _, first, final = prune()
    return math.ceil(((v == fits(mode) and first or final) - now) / 1000)
  end
  return redis.call('PTTL', lock)
end

-- foreign reports whether the holder is not one of ours, who tell when they release.
local function foreign(v)
  if not v or v == 'snib:kept' or several(v) then return false end
  local had = inscribed()
  return not had or had.owner ~= v
end

-- tell tells the holders that another process waits.
local function tell(v, channel)
  local holders = {}
  if several(v) then
    for _, e in ipairs(redis.call('HVALS', record)) do table.insert(holders, holding(json(e))) end
  else
    table.insert(holders, (inscribed()))
  end
  for _, h in ipairs(holders) do
    if h.channel ~= channel then hint(h, 'w') end
  end
end

-- enqueue gives a waiter a place, unless it has one, and notes that it lives.
local function enqueue(owner, rest)
  local tail = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
  local place = math.max(now, tail and tonumber(tail) + 1 or 0)
  local new = redis.call('ZADD', queue, 'NX', string.format('%d', place), owner) == 1
  redis.call('HSET', requests, owner, entry(now, '{' .. rest))
  redis.call('PEXPIRE', queue, absence / 500)
  redis.call('PEXPIRE', requests, absence / 500)
  return new, parse('{' .. rest).channel
end

-- conflict returns what the name is in use as, if that is not what mode asks for.
local function conflict(v, mode)
  local kind = v and nameOf(v)
  if not v then
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    local r = first and requestOf(first)
    kind = r and name(r.mode)
  end
  if kind and kind ~= name(mode) then return kind end
end

-- present returns the value of the lock's key once all who wait and can be served have been, and those who are gone forgotten.
local function present(mode)
  local v, what = value()
  if v and several(v) and v ~= fits(mode) and prune() == 0 then v = false end
  if v == false and redis.call('EXISTS', queue) == 1 then
    settle()
    v = value()
  end
  return v, what
end

local function acquire(owner, mode, ttl, tokens, waits, rest)
  ttl, tokens = tonumber(ttl), tonumber(tokens)
  local wait = grace(ttl)
  if wait > 0 then
    local v = value()
    if v and v ~= owner and waits ~= '1' and not admits(mode) then return 'h ' .. left(v, mode) end
    return 'e ' .. wait
  end
  if exhausted() then
    error('the last fencing token, field t of ' .. KEYS[1] .. ', is ' .. known[1] .. ', above which none can be counted', 0)
  end
  local v, what = present(mode)
  if v == nil then return 'k a ' .. what end
  local answer = v and again(v, owner, mode, ttl, tokens, rest)
  if answer then return answer end
  local kind = conflict(v, mode)
  if kind then return 'k ' .. kind end
  if redis.call('EXISTS', queue) == 0 and admits(mode) then
    local token = reserve(tokens)
    write(token, now, owner, mode, ttl, rest)
    return granted(token, tokens, false)
  end
  if waits ~= '1' then return 'h ' .. left(v, mode) end
  local new, channel = enqueue(owner, rest)
  if not v or several(v) then -- else there is no room for anybody
    answer = settle(owner)
    if answer then return answer end
    v = value()
  end
  if new and v then tell(v, channel) end
  local first = redis.call('ZRANGE', queue, 0, 0)[1] == owner
  return string.format('q %d %d', left(v, mode), first and (foreign(v) and 2 or 1) or 0)
end

-- stir makes the first who waits look again: what it reckons with has changed.
local function stir()
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local r = first and requestOf(first)
  if r then wake(r) end
end

-- keep keeps a released hold until it has lasted for minHold ms, and reports whether it does. Had is its record; where
-- several may hold, it stands there under its owner.
local function keep(owner, had, minHold, shares)
  local till = holding(had).since + minHold * 1000
  if till <= now then return false end
  local ms = math.ceil((till - now) / 1000)
  if shares then
    redis.call('HDEL', record, owner)
    redis.call('HSET', record, 'snib:kept:' .. owner, entry(till, had))
    local _, _, final = prune()
    ms = math.ceil((final - now) / 1000)
    redis.call('PEXPIRE', lock, ms)
  else
    redis.call('SET', lock, 'snib:kept', 'PX', ms)
  end
  redis.call('PEXPIRE', record, ms) -- and not for as long as the lease would have
  stir()
  return true
end

-- part takes one of several holds out.
local function part(field)
  redis.call('HDEL', record, field)
  if redis.call('EXISTS', record) == 0 then redis.call('DEL', lock) end
  settle()
  return 'o'
end

-- find reports whether the hold with that token is still there, and returns its record as text and as a table, if it has one, and whether
-- others may hold beside it.
local function find(owner, token)
  local v = value()
  if v and several(v) then
    local e = redis.call('HGET', record, owner)
    local r = e and at(e) > now and holding(json(e))
    return r and string.format('%d', r.token) == token, e and json(e), r, true
  end
  local r, had = inscribed()
  if v ~= owner or not r or r.owner ~= owner then return v == owner end
  return string.format('%d', r.token) == token, had, r, false
end

-- release ends the hold with that token.
local function release(owner, minHold, token)
  local there, had, r, shares = find(owner, token)
  if not there then return 'l' end
  forget(r)
  minHold = tonumber(minHold)
  if minHold > 0 and had and keep(owner, had, minHold, shares) then return 'o' end
  if shares then return part(owner) end
  redis.call('DEL', lock, record)
  settle()
  return 'o'
end

-- check returns l if the hold with that token has ended, w if a process other than that of channel waits, and else o.
local function check(owner, token, channel)
  if not find(owner, token) then return 'l' end
  return wanted(channel) and 'w' or 'o'
end

-- withdraw takes back what an acquisition asked for, whatever has become of it, and nothing that its owner has asked for since.
local function withdraw(owner, process, id)
  local function meant(r) return r and (r.process or r.channel) == process and r.id == id end
  local first = redis.call('ZRANGE', queue, 0, 0)[1] == owner
  if meant((requestOf(owner))) then leave(owner) end
  local v = value()
  if v and several(v) then
    local e = redis.call('HGET', record, owner)
    local r = e and at(e) > now and holding(json(e))
    if meant(r) then
      forget(r)
      return part(owner)
    end
  elseif v == owner and meant((inscribed())) then
    forget((inscribed()))
    redis.call('DEL', lock, record)
  end
  settle() -- others may have waited for the place that it had
  if first then stir() end
  return 'o'
end

-- free ends a hold by force, if it is the one that is meant. A stranger's has no token: 0.
local function free(owner, token)
  local v = value()
  if v and several(v) then
    for _, field in ipairs({owner, 'snib:kept:' .. owner}) do
      local e = redis.call('HGET', record, field)
      local r = e and at(e) > now and holding(json(e))
      if r and string.format('%d', r.token) == token then
        forget(r)
        hint(r, 'b')
        return part(field)
      end
    end
    return 'l'
  end
  local r = inscribed()
  local ours = r and r.owner == owner and (v == owner or v == 'snib:kept')
  if (ours and string.format('%d', r.token) or v == owner and '0') ~= token then return 'l' end
  redis.call('DEL', lock, record)
  if ours then
    forget(r)
    hint(r, 'b')
  end
  settle()
  return 'o'
end

local serve = {A = acquire, R = release, w = withdraw, b = free, c = check}
local answers, arg = {}, 3
for k = 3, #KEYS, 4 do
  lock, record, queue, requests = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local n = tonumber(ARGV[arg + 1])
  local ok, answer = pcall(serve[ARGV[arg]], unpack(ARGV, arg + 2, arg + 1 + n))
  if not ok then answer = 'x ' .. (type(answer) == 'table' and answer.err or tostring(answer)) end
  answers[#answers + 1] = answer
  arg = arg + 2 + n
end
if not exhausted() and last ~= (tonumber(known[1]) or 0) then note('t', last) end
save()
return answers
`

// extendBody and renewBody answer with one text that has a character for each lease: 1 if it
// was extended, 0 if it has ended.
const extendBody = `
-- KEYS: the locks. ARGV: the TTL; the owners.
local held, answers, ttl = redis.call('MGET', unpack(KEYS)), {}, ARGV[1]
for i = 1, #KEYS do
  if held[i] == ARGV[i + 1] then
    redis.call('PEXPIRE', KEYS[i], ttl)
    answers[i] = '1'
  else
    answers[i] = '0'
  end
end
return {table.concat(answers)}
`

const renewBody = `
-- KEYS: what the store knows of itself; the leases that outlast the floor; for each lease the lock and its record.
-- ARGV: the floor of the grace, the longest TTL; for each lease: the value of the lock's key, the owner, the token, the TTL.
local answers = {}

-- holds reports whether a record is that of the lease.
local function holds(text, token)
  local head = '{"token":' .. token .. ','
  return type(text) == 'string' and string.sub(text, 1, #head) == head
end

for i = 3, #ARGV, 4 do
  local value, owner, token, ttl = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local lock, record, ok = KEYS[(i + 3) / 2], KEYS[(i + 5) / 2], false
  if redis.pcall('GET', lock) == value then
    if value == owner then
      local text = redis.pcall('GET', record)
      ok = not text or holds(text, token)
      if ok then
        redis.call('PEXPIRE', lock, ttl)
        redis.call('PEXPIRE', record, 4 * ttl + 60000)
      end
    else
      local e = redis.pcall('HGET', record, owner)
      ok = type(e) == 'string' and tonumber(string.sub(e, 1, 16)) > now and holds(string.sub(e, 17), token)
      if ok then
        redis.call('HSET', record, owner, string.format('%016d', now + ttl * 1000) .. string.sub(e, 17))
        for _, key in ipairs({lock, record}) do
          if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
        end
      end
    end
  end
  if ok then lasts(lock, owner, ttl) end
  answers[#answers + 1] = ok and '1' or '0'
end
return {table.concat(answers)}
`
