package redislock

// A script is Lua that runs in Redis. Redis knows it by a digest, so only the first use on each server sends the text.
//
// The scripts are the backend's state machine; docs/backends/redislock.md describes the keys that they write. They use
// nothing beyond Redis 6.2, reckon by the server's clock only, and name all their keys, which lie in one slot.
const (
	// quickScript takes free locks and frees exclusive ones, as long as nobody waits for them: what most requests come to. It serves
	// many in a few commands, and leaves to tradeScript what is not that simple.
	quickScript = clock + quickBody

	// tradeScript serves any request. One that fails does not keep the others of its batch from being served.
	tradeScript = clock + "local graceful = ARGV[1] == '1'\n" + memory + identity + tradeBody

	// extendScript extends the locks' keys of exclusive leases with the same TTL, renewScript any leases with all that belongs to them.
	extendScript = clock + memory + extendBody
	renewScript  = clock + memory + renewBody

	// lookScript reads locks, and writes nothing.
	lookScript = `
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

// memory is what the store knows of itself, in KEYS[1].
//
// The fields there: t, the last fencing token; r, the run_id of the server that wrote last; c, when its memory begins, and
// x, for how long from then leases may live that it does not know of; a and b, the longest TTL in this period and in the
// one before, and f, the end of this period. A period is no shorter than the longest TTL of the one before, so a and b
// cover all leases that live. Times are microseconds, TTLs milliseconds.
const memory = `
local known = redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x', 'a', 'b', 'f')
local longest, before, flip = tonumber(known[5]) or 0, tonumber(known[6]) or 0, tonumber(known[7]) or 0
local changed = {}

local function note(field, value)
  changed[#changed + 1] = field
  changed[#changed + 1] = type(value) == 'number' and string.format('%d', value) or value
end

-- uses keeps account of the longest TTL in use.
local function uses(ttl)
  if now >= flip then
    before, longest = longest, 0
    flip = now + math.max(before, ttl) * 1000
    note('b', before)
    note('f', flip)
    note('a', 0)
  end
  if ttl > longest then
    longest = ttl
    note('a', longest)
  end
end

local function save()
  if #changed > 0 then redis.call('HSET', KEYS[1], unpack(changed)) end
end
`

// identity finds out whether this is the server that wrote last, and since when its memory is whole.
const identity = `
local start, unknown
local function identify()
  start, unknown = tonumber(known[3]) or 0, tonumber(known[4]) or 0
  local info = redis.call('INFO', 'server')
  if known[2] and string.find(info, known[2], 1, true) then return end
  if known[2] then -- restarted with its memory, or promoted: what was not written or replicated in time is lost
    start, unknown = now, math.max(longest, before)
  else -- restarted without memory, or new
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) -- up to a second too much: a difference of whole ones
    start, unknown = now - math.max(uptime - 1, 0) * 1000000, 0
  end
  note('c', start)
  note('x', unknown)
  note('r', string.match(info, 'run_id:(%w+)'))
end

-- grace returns for how many ms nothing may be granted, if that is positive. For the TTLs that the memory does not know of, the
-- one that is asked for now stands, up to a minute.
local function grace(ttl)
  if not graceful then return 0 end
  if not start then identify() end
  if start > now then -- the clock was set back: what it said of the beginning is worth nothing
    start = now
    note('c', start)
  end
  return math.ceil((start - now) / 1000 + math.max(unknown, math.min(ttl, 60000)))
end
`

// quickBody answers each request with o, done, g TOKEN TOKENS 0, granted, h LEFT, held for another LEFT ms, or ?, ask tradeScript.
// After those it may answer "v NOW FLIP TTL": at NOW the server was found to be the one that wrote last, and nothing speaks against
// grants; for TTLs up to TTL, and until FLIP, who was told so a moment ago need not have that found out again.
const quickBody = `
-- KEYS[1]: what the store knows of itself; the locks to release, and their records; the queues of all locks; the locks to take, and
-- their records.
-- ARGV: 1 for failover-grace; the time from which and the one until which it is known whose memory this is; how many locks to release,
-- and to take; for each of the first its owner and token; for each of the second its owner, TTL, tokens, and record; the longest of the
-- TTLs.
local graceful, frees, takes = ARGV[1] == '1', tonumber(ARGV[4]), tonumber(ARGV[5])
local answers, queues = {}, 1 + 2 * frees
local waited = redis.call('EXISTS', unpack(KEYS, queues + 1, queues + frees + takes)) > 0

if frees > 0 then
  local held, gone = redis.call('MGET', unpack(KEYS, 2, 1 + 2 * frees)), {} -- the locks, and then the records
  for i = 1, frees do
    local owner, head = ARGV[4 + 2 * i], '{"token":' .. ARGV[5 + 2 * i] .. ','
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

-- The locals of what follows end with the if.
local vouched, refused
if now < tonumber(ARGV[2]) or now >= tonumber(ARGV[3]) then
  local ttl = tonumber(ARGV[#ARGV])
` + memory + identity + `
  refused = grace(ttl) > 0
  if not refused then
    uses(ttl)
    vouched = string.format('v %d %d %d', now, flip, ttl)
  end
  save()
end

local last = tonumber(redis.call('HGET', KEYS[1], 't')) or 0
local locks, arg, won, sum = queues + frees + takes, 5 + 2 * frees, {}, 0
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
    arg = 5 + 2 * frees + 4 * (i - 1)
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

// tradeBody answers each request with a letter and what belongs to it:
//
//	g TOKEN TOKENS WANTED  granted; WANTED is 1 if another process waits
//	q LEFT PLACE           in the queue; the present holders' time, in ms; PLACE is 0, 1 for the first, and 2 for the first
//	                       behind a stranger, who will not tell of a release
//	h LEFT                 held; LEFT is -1 if the lock's key has no end
//	e LEFT                 nothing is granted for LEFT ms: the server restarted or was promoted
//	k WHAT                 the name is in use as WHAT
//	o                      done
//	w                      another process waits
//	l                      there is no such hold
//	x TEXT                 an error of Redis
//
// What it publishes to a process begins with the id of the request that it is about: "ID g TOKEN TOKENS WANTED", "ID w" for
// the holder, and "ID k": ask again.
const tradeBody = `
-- KEYS[1]: what the store knows of itself; then for each request: the lock, its record, its queue, the requests in it.
-- ARGV[1]: 1 for failover-grace; then for each request: its code, the owner, how many more arguments, and these.
local absence = 15000000 -- after how long a waiter that does not stir is forgotten; it asks every third of that
local lock, record, queue, requests -- of the present request
local last = tonumber(known[1]) or 0

local function reserve(tokens)
  local token = math.max(last + 1, now)
  last = token + tokens - 1
  return token
end

local function granted(token, tokens, others)
  return string.format('g %d %d %d', token, tokens, others and 1 or 0)
end

local function text(token, since, rest)
  return string.format('{"token":%d,"since":%d,', token, since) .. rest
end

-- inscribe writes the record of an exclusive hold. It outlives the lock's key, so that not each renewal has to extend it.
local function inscribe(token, since, ttl, rest)
  redis.call('SET', record, text(token, since, rest), 'PX', 4 * ttl + 60000)
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

-- An entry of a hash is a time of 16 digits and a JSON object.
local function entry(at, json) return string.format('%016d', at) .. json end
local function at(e) return tonumber(string.sub(e, 1, 16)) end
local function json(e) return string.sub(e, 17) end

-- parse returns what a JSON object says, or nil if it is none.
local function parse(json)
  local ok, r = pcall(cjson.decode, json)
  if ok and type(r) == 'table' then return r end
end

local function decode(e) return parse(json(e)) end

local function requestOf(owner)
  local e = redis.call('HGET', requests, owner)
  if e then return decode(e), e end
end

local function sharded(r) return string.find(r.channel, '{', 1, true) end

-- post sends a message to who waits. If that is not allowed, they find out for themselves.
local function post(r, message)
  redis.pcall(sharded(r) and 'SPUBLISH' or 'PUBLISH', r.channel, r.id .. ' ' .. message)
end

-- hears reports whether who waits listens to this server. The count that PUBLISH returns would say it too late: who listens to a
-- replica hears what is published and is not counted.
local function hears(r)
  return redis.call('PUBSUB', sharded(r) and 'SHARDNUMSUB' or 'NUMSUB', r.channel)[2] > 0
end

-- inscribed returns the record of the exclusive hold whose owner is v, and its text, or nil.
local function inscribed()
  local had = redis.pcall('GET', record)
  if type(had) == 'string' then return parse(had), had end
end

local function outlast(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
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
  uses(ttl)
  if mode == 'x' then
    redis.call('SET', lock, owner, 'PX', ttl)
    inscribe(token, since, ttl, rest)
    return
  end
  if redis.call('SET', lock, fits(mode), 'PX', ttl, 'NX') then redis.call('DEL', record) end
  redis.call('HSET', record, owner, entry(now + ttl * 1000, text(token, since, rest)))
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
    elseif not admits(r.mode) or grace(r.ttl) > 0 then
      return
    else
      leave(first)
      if first == self or r.blind or hears(r) then
        local token = reserve(r.tokens)
        local answer = granted(token, r.tokens, wanted(r.channel))
        write(token, now, first, r.mode, r.ttl, string.sub(e, 18))
        if first == self then return answer end
        post(r, answer)
        if r.mode == 'x' then return end -- nobody else fits
      else
        post(r, 'k') -- if it listens to another server, it asks again
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
    had = decode(e)
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
    for _, e in ipairs(redis.call('HVALS', record)) do table.insert(holders, decode(e)) end
  else
    table.insert(holders, (inscribed()))
  end
  for _, h in ipairs(holders) do
    if h.channel ~= channel then redis.pcall('PUBLISH', h.process or h.channel, h.id .. ' w') end
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
  if wait > 0 then return 'e ' .. wait end
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
  if r then post(r, 'k') end
end

-- keep keeps a released hold until it has lasted for minHold ms, and reports whether it does. Had is its record; where
-- several may hold, it stands there under its owner.
local function keep(owner, had, minHold, shares)
  local till = parse(had).since + minHold * 1000
  if till <= now then return false end
  uses(minHold)
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

-- release ends the hold with that token.
local function release(owner, minHold, token)
  local v = value()
  minHold = tonumber(minHold)
  if v and several(v) then
    local e = redis.call('HGET', record, owner)
    local r = e and at(e) > now and decode(e)
    if not r or string.format('%d', r.token) ~= token then return 'l' end
    if minHold > 0 and keep(owner, json(e), minHold, true) then return 'o' end
    return part(owner)
  end
  if v ~= owner then return 'l' end
  local r, had = inscribed()
  if r and r.owner == owner then
    if string.format('%d', r.token) ~= token then return 'l' end
    if minHold > 0 and keep(owner, had, minHold) then return 'o' end
  end
  redis.call('DEL', lock, record)
  settle()
  return 'o'
end

-- withdraw takes back what an acquisition asked for, whatever has become of it, and nothing that its owner has asked for since.
local function withdraw(owner, process, id)
  local function meant(r) return r and (r.process or r.channel) == process and string.match(r.id, '^%d+') == id end
  local first = redis.call('ZRANGE', queue, 0, 0)[1] == owner
  if meant((requestOf(owner))) then leave(owner) end
  local v = value()
  if v and several(v) then
    local e = redis.call('HGET', record, owner)
    if e and at(e) > now and meant(decode(e)) then return part(owner) end
  elseif v == owner and meant((inscribed())) then
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
      local r = e and at(e) > now and decode(e)
      if r and string.format('%d', r.token) == token then return part(field) end
    end
    return 'l'
  end
  local r = inscribed()
  local ours = r and r.owner == owner and (v == owner or v == 'snib:kept')
  if (ours and string.format('%d', r.token) or v == owner and '0') ~= token then return 'l' end
  redis.call('DEL', lock, record)
  settle()
  return 'o'
end

-- peek reports whether another process waits than that of channel.
local function peek(channel) return wanted(channel) and 'w' or 'o' end

local serve = {A = acquire, R = release, w = withdraw, b = free, p = peek}
local answers, arg = {}, 2
for k = 2, #KEYS, 4 do
  lock, record, queue, requests = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local n = tonumber(ARGV[arg + 1])
  local ok, answer = pcall(serve[ARGV[arg]], unpack(ARGV, arg + 2, arg + 1 + n))
  if not ok then answer = 'x ' .. (type(answer) == 'table' and answer.err or tostring(answer)) end
  answers[#answers + 1] = answer
  arg = arg + 2 + n
end
if last ~= (tonumber(known[1]) or 0) then note('t', last) end
save()
return answers
`

// extendBody and renewBody answer with a text of one character for each lease: 1 if it was extended, 0 if it has ended.
const extendBody = `
-- KEYS[1]: what the store knows of itself; the locks. ARGV: the TTL; the owners.
local held, answers, ttl = redis.call('MGET', unpack(KEYS, 2)), {}, ARGV[1]
for i = 1, #KEYS - 1 do
  if held[i] == ARGV[i + 1] then
    redis.call('PEXPIRE', KEYS[i + 1], ttl)
    answers[i] = '1'
  else
    answers[i] = '0'
  end
end
uses(tonumber(ttl))
save()
return {table.concat(answers)}
`

const renewBody = `
-- KEYS[1]: what the store knows of itself; for each lease the lock and its record.
-- ARGV: for each lease: the value of the lock's key, the owner, the token, the TTL.
local answers = {}

-- holds reports whether a record is that of the lease.
local function holds(text, token)
  local head = '{"token":' .. token .. ','
  return type(text) == 'string' and string.sub(text, 1, #head) == head
end

for i = 1, #ARGV, 4 do
  local value, owner, token, ttl = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local lock, record, ok = KEYS[(i + 3) / 2], KEYS[(i + 3) / 2 + 1], false
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
  if ok then uses(ttl) end
  answers[#answers + 1] = ok and '1' or '0'
end
save()
return {table.concat(answers)}
`
