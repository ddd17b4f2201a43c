package redlock

import (
	"crypto/sha1" //nolint:gosec // the digest by which Redis knows a script; nothing rests on its strength
	"encoding/hex"
)

// A script is Lua that runs in Redis. One call serves a batch of requests in order, each in
// one atomic step.
//
// The scripts implement a node. docs/backends/redlock.md describes the keys and the requests;
// package internal/quorum says why the steps are as they are. The scripts need nothing newer
// than Redis 6.2.
type script struct {
	text string
	sha1 string // in hexadecimal, for EVALSHA
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text: text, sha1: hex.EncodeToString(sum[:])}
}

// holdScript serves the frequent requests, which are about holding locks. adminScript
// serves all others.
var (
	holdScript  = newScript(preamble + holdBody)
	adminScript = newScript(preamble + adminBody)
)

// preamble reads the node's own state. Its variable closed says why the node serves
// nobody, or is nil.
const preamble = `
-- KEYS: snib.redlock; for n requests: their locks. Those who wait for a lock stand in a key of its name behind snib.rw:.
-- The counter c4096 is no lock's: it is the floor that an operator gave.
-- ARGV: the cluster; our address of this node; n; the fields of the n counters; the requests.
local meta, n = KEYS[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local known = redis.call('HMGET', meta, 'admitted', 'cluster', 'self', 'mark', 'c4096', unpack(ARGV, 4, 3 + n))
local blank = not known[2]
local ours = known[2] == ARGV[1] and known[3] == ARGV[2]
local admitted = ours and known[1] == run
local closed
if not ours and not blank then
  closed = 'm ' .. (known[3] or '?') .. ' ' .. known[2]
elseif not admitted then
  closed = known[2] and 'u' or 'u blank'
end
`

// holdBody serves these requests, by code:
//
//	a NONCE TTL HINT JSON                take the lock if it is free
//	A NONCE TTL HINT JSON TOKENS OWNER   take the lock, with so many tokens; OWNER is empty
//	                                     unless the attempt waits
//	g NONCE TTL                          repeat a round: take nothing that the nonce does not have
//	r NONCE TO                           raise the counter of a round to its target
//	e NONCE TTL TOKEN JSON               extend a lease, or take the lock for it again if nobody
//	                                     else has had it since
//	f NONCE KEEP                         free the lock, or keep it closed for so many ms
//	b NONCE KEEP                         the same by force: publish that to the holder
//	x VALUE -                            free a foreign key
//	d OWNER                              remove a waiter
//
// It gives these answers:
//
//	g COUNTER      granted
//	h LEFT VALUE   held; LEFT is -1 if the key has no expiry
//	o              done
//	n              the key does not have the nonce, or has been another's since
//	u              the node is not admitted; with the word blank if it has no state of its own
//	m SELF CLUSTER the node belongs to another cluster
//	k TYPE         the key is not a string
//	x TEXT         an error of Redis
//
// A nonce ends with a space. The script first computes all steps, then raises all counters in
// one command, and then writes the keys. So whatever fails in between, no key passes to another
// round without a greater counter.
const holdBody = `
local absence = 15000 -- ms after which a waiter that does not stir is forgotten; it asks every third of that
local held, counter, raised = {}, {}, {} -- values by key, counters by field, and which of these have changed
local wrong = {}                         -- why a counter can't be right, by field
local gone, wrote, told = {}, {}, {}     -- keys to be deleted; those to be written, and the releases that waiters may hear of
local broken = {}                        -- nonces of leases whose holders are to hear that they were broken
local values = redis.call('MGET', unpack(KEYS, 2, 1 + n))
local ahead = 86400000000 -- us by which a counter may be ahead of the clock, or of the floor: only a bad client or a bad clock makes more
local floor = tonumber(known[5]) or 0
local most = math.min(math.max(now, floor) + ahead, 2^53 - 2^20)
for i = 1, n do
  local field, text = ARGV[3 + i], known[5 + i] or '0'
  held[KEYS[1 + i]] = values[i]
  local c = string.match(text, '^%d+$') and tonumber(text)
  counter[field] = c or 0
  if not c then
    wrong[field] = 'x the counter ' .. field .. ' is no number: ' .. string.sub(text, 1, 40)
  elseif c > most then
    wrong[field] = 'x the counter ' .. field .. ' is more than a day ahead of the clock: ' .. string.sub(text, 1, 40)
  end
end
local format, sub = string.format, string.sub
local since = ' {"since":' .. format('%d', now) .. ','

-- enlist notes that somebody waits: when it was heard of last, and first, and who it is.
local function enlist(waiting, owner, rest)
  local old, stamp = redis.pcall('HGET', waiting, owner), format('%016d', now)
  if type(old) == 'table' then return end -- the key is somebody else's, and of another type
  local first = old and string.match(sub(old, 17, 32), '^%d+$')
  local entry = stamp .. (first and #first == 16 and first or stamp) .. '{' .. rest
  local fresh = redis.pcall('HSET', waiting, owner, entry)
  if fresh == 1 and redis.call('HLEN', waiting) % 32 == 0 then
    local all = redis.call('HGETALL', waiting)
    for i = 1, #all, 2 do
      if (tonumber(sub(all[i + 1], 1, 16)) or 0) + absence * 1000 < now then redis.call('HDEL', waiting, all[i]) end
    end
  end
  redis.call('PEXPIRE', waiting, absence)
end

-- write says what a key is to have. The first request that rests on it is kept with it.
local function write(i, lock, value, ttl)
  local w = wrote[lock]
  held[lock], wrote[lock] = value, {w and w[1] or i, value, ttl}
end

-- numbered returns a lock's value with another token.
local function numbered(v, nonce, token)
  return nonce .. token .. (string.match(v, ' .*$', #nonce + 1) or ' {}')
end

-- prolong gives a key another end, also one that this call has yet to write.
local function prolong(lock, ttl)
  if wrote[lock] then wrote[lock][3] = ttl else redis.call('PEXPIRE', lock, ttl) end
end

local answers, arg = {}, 4 + n
for i = 1, n do
  local lock, field, code, nonce = KEYS[1 + i], ARGV[3 + i], ARGV[arg], ARGV[arg + 1]
  local v, c, answer = held[lock], counter[field], closed
  local mine = v and sub(v, 1, #nonce) == nonce
  if code == 'f' or code == 'b' then
    if mine then
      if not wrong[field] then counter[field], raised[field] = c + 1, true end -- so that the lease can't take it again
      if ARGV[arg + 2] == '0' then
        held[lock], wrote[lock], gone[lock] = false, nil, values[i] and true or nil
      else
        write(i, lock, 'kept:' .. v, ARGV[arg + 2])
      end
      told[#told + 1] = 'snib.rw:' .. lock
      if code == 'b' then broken[#broken + 1] = nonce end
      answer = 'o'
    elseif admitted then
      answer = 'n'
    end
    arg = arg + 3
  elseif code == 'a' or code == 'A' then
    local ttl, more, owner = ARGV[arg + 2], 0, ''
    if code == 'A' then more, owner = tonumber(ARGV[arg + 5]) - 1, ARGV[arg + 6] end
    if closed then
      -- that is the answer
    elseif mine then
      prolong(lock, ttl)
      answer = 'g ' .. (string.match(v, '^%S+ (%d+)') or '')
    elseif v then
      if owner ~= '' then enlist('snib.rw:' .. lock, owner, ARGV[arg + 4]) end
      answer = 'h ' .. (wrote[lock] and wrote[lock][3] or redis.call('PTTL', lock)) .. ' ' .. v
    elseif wrong[field] then
      answer = wrong[field]
    else
      local hint = tonumber(ARGV[arg + 3])
      if hint > now + 60000000 then hint = now + 60000000 end
      if hint <= c then hint = c + 1 end
      c = hint + more
      counter[field], raised[field] = c, true
      local number = format('%d', c)
      v = nonce .. number .. since .. ARGV[arg + 4]
      write(i, lock, v, ttl)
      if owner ~= '' then redis.pcall('HDEL', 'snib.rw:' .. lock, owner) end
      answer = 'g ' .. number
    end
    arg = arg + (code == 'a' and 5 or 7)
  elseif code == 'e' then
    if closed then
      -- that is the answer
    elseif mine then
      local number = ARGV[arg + 3] .. ' '
      prolong(lock, ARGV[arg + 2]) -- whatever becomes of the rest
      if sub(v, #nonce + 1, #nonce + #number) ~= number then -- so that the owner, asking again, is told this token here, too
        write(i, lock, numbered(v, nonce, ARGV[arg + 3]), ARGV[arg + 2])
      end
      answer = 'o'
    elseif v or c > tonumber(ARGV[arg + 3]) then
      answer = 'n'
    elseif wrong[field] then
      answer = wrong[field]
    else
      counter[field], raised[field] = tonumber(ARGV[arg + 3]), true
      write(i, lock, nonce .. ARGV[arg + 3] .. since .. ARGV[arg + 4], ARGV[arg + 2])
      answer = 'o'
    end
    arg = arg + 5
  elseif code == 'r' then
    local to = tonumber(ARGV[arg + 2])
    if closed then
      -- that is the answer
    elseif wrong[field] or to > most then
      answer = wrong[field] or 'x the token ' .. ARGV[arg + 2] .. ' is more than a day ahead of the clock'
    elseif mine and c <= to then
      counter[field], raised[field] = to, true
      local ttl = wrote[lock] and wrote[lock][3] or redis.call('PTTL', lock)
      write(i, lock, numbered(v, nonce, ARGV[arg + 2]), ttl)
      answer = 'o'
    else
      answer = 'n'
    end
    arg = arg + 3
  elseif code == 'g' then
    if mine and not closed then
      prolong(lock, ARGV[arg + 2])
      answer = 'g ' .. (string.match(v, '^%S+ (%d+)') or '')
    end
    answer = answer or 'n'
    arg = arg + 3
  elseif code == 'x' then
    answer = v == nonce and 'o' or 'n'
    if v == nonce then
      if not wrong[field] then counter[field], raised[field] = c + 1, true end
      held[lock], wrote[lock], gone[lock] = false, nil, values[i] and true or nil
    end
    arg = arg + 3
  else -- d
    redis.pcall('HDEL', 'snib.rw:' .. lock, nonce)
    answer = 'o'
    arg = arg + 2
  end
  answers[i] = answer
end

local fields = {}
for name in pairs(raised) do
  fields[#fields + 1] = name
  fields[#fields + 1] = format('%d', counter[name])
end
local done = #fields == 0 or redis.pcall('HSET', meta, unpack(fields))
if type(done) == 'table' then -- as a rule there is no memory left; what needs none, such as to extend a lease, has been done
  for i = 1, n do
    if raised[ARGV[3 + i]] then answers[i] = 'x ' .. done.err end
  end
  return answers
end
local keys = {}
for key in pairs(gone) do keys[#keys + 1] = key end
if #keys > 0 then redis.call('DEL', unpack(keys)) end
for key, w in pairs(wrote) do
  local r
  if values[w[1]] and not gone[key] then
    r = redis.pcall('SET', key, w[2], 'PX', w[3])
  else
    r = redis.pcall('SET', key, w[2], 'PX', w[3], 'NX')
  end
  if not r or r.err then -- without r it was neither free nor a string
    local answer = r and 'x ' .. r.err or 'k ' .. redis.call('TYPE', key).ok
    for i = r and w[1] or 1, n do -- whatever rested on it, too
      if KEYS[1 + i] == key then answers[i] = answer end
    end
  end
end
for _, nonce in ipairs(broken) do -- a hint: an error, such as for want of a right, changes nothing
  redis.pcall('PUBLISH', 'snib.rb:' .. string.match(nonce, '^[^.]*'), nonce)
end
if #told > 0 and redis.call('EXISTS', unpack(told)) > 0 then
  for _, waiting in ipairs(told) do -- with their number, by which they spread their attempts
    local crowd = redis.pcall('HLEN', waiting)
    if type(crowd) == 'number' and crowd > 0 then redis.pcall('PUBLISH', waiting, crowd) end
  end
end
return answers
`

// adminBody serves requests for people and for the admission of nodes. Each is alone
// in its call:
//
//	l          show a lock
//	s          show the node's own state
//	m TEXT     mark the node for this run, unless it is marked; then as s
//	c          1 if the node is admitted, otherwise 0; then all counters that are not zero
//	j RUN MARK FLOOR COUNTERS OPERATOR
//	           admit the node, if run and mark are still those that were waited for; o or n.
//	           OPERATOR is 1 if the floor is an operator's, and 0 if it is a clock's. The latter
//	           counts for at most a minute ahead of the node's own clock.
//	i          initialise the node, if it belongs to no cluster; o or n
const adminBody = `
local mark = known[4] and string.match(known[4], '^' .. run .. ' (.*)$') or nil

local function standing()
  return cjson.encode({run = run, admitted = known[1] or '', mark = mark or '', cluster = known[2] or '', self = known[3] or ''})
end

local function look(lock, waiting)
  local kind = redis.call('TYPE', lock).ok
  local seen = {kind = kind, left = redis.call('PTTL', lock), now = string.format('%d', now)}
  if kind == 'string' then seen.value = redis.call('GET', lock) end
  local line = redis.pcall('HVALS', waiting)
  if line.err then line = {} end -- the key is somebody else's
  for i = #line, 1, -1 do
    if (tonumber(string.sub(line[i], 1, 16)) or 0) + 15000000 < now then table.remove(line, i) end
  end
  if #line > 0 then seen.line = line end
  return cjson.encode(seen)
end

local function counters()
  local all, out = redis.call('HGETALL', meta), {admitted and '1' or '0'}
  for i = 1, #all, 2 do
    local stripe = string.match(all[i], '^c(%d+)$')
    if stripe then out[#out + 1] = stripe .. ' ' .. (string.gsub(all[i + 1] == '' and '_' or all[i + 1], '%s', '_')) end
  end
  return table.concat(out, ' ')
end

local function admit()
  redis.call('HSET', meta, 'cluster', ARGV[1], 'self', ARGV[2], 'admitted', run)
  redis.call('HDEL', meta, 'mark')
  return 'o'
end

-- raiseAll raises the counters to those that were read, and to a floor.
local function raiseAll(floor, read, operator)
  local all, batch = {}, {}
  if operator and floor > 0 then all.c4096 = floor end
  if not operator then floor = math.min(floor, now + 60000000) end
  for stripe = 0, floor > 0 and 4095 or -1 do all['c' .. stripe] = floor end
  for stripe, to in string.gmatch(read, '(%d+) (%d+)') do
    all['c' .. stripe] = math.max(all['c' .. stripe] or 0, tonumber(to))
  end
  for name, to in pairs(all) do
    if to > (tonumber(redis.call('HGET', meta, name)) or 0) then
      batch[#batch + 1] = name
      batch[#batch + 1] = string.format('%d', to)
      if #batch == 1000 then
        redis.call('HSET', meta, unpack(batch))
        batch = {}
      end
    end
  end
  if #batch > 0 then redis.call('HSET', meta, unpack(batch)) end
end

local code, arg = ARGV[5], 5
if code == 'l' then return {look(KEYS[2], 'snib.rw:' .. KEYS[2])} end
if code == 'c' then return {counters()} end
if code == 'm' and (ours or blank) and not admitted and not mark then
  mark = ARGV[arg + 1]
  redis.call('HSET', meta, 'mark', run .. ' ' .. mark)
elseif code == 'j' then
  if not (ours or blank) or admitted or ARGV[arg + 1] ~= run or ARGV[arg + 2] ~= mark then return {'n'} end
  raiseAll(tonumber(ARGV[arg + 3]), ARGV[arg + 4], ARGV[arg + 5] == '1')
  return {admit()}
elseif code == 'i' then
  return {blank and admit() or 'n'}
end
return {standing()}
`
