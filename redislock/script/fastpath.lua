-- Releases and acquires exclusive locks for which nobody waits, which is the common case. It
-- serves many requests with few Redis commands, and leaves every other case to the full script. A
-- hold that it grants has no record yet. The holder writes that if it keeps the hold (check.lua).
--
-- KEYS[1]  the server's memory, see memory.lua
-- KEYS     then, for R releases and A acquisitions:
--            R locks to release; their R records
--            R + A queues, of the locks to release and to acquire
--            A locks to acquire
-- ARGV[1]  the minimum grace period, and
-- ARGV[2]  the longest TTL, both in ms
-- ARGV[3]  the server was found to be the one that wrote last from this time on, and
-- ARGV[4]  this result is valid until then, both in microseconds
-- ARGV[5]  R, and
-- ARGV[6]  A
-- ARGV     then for each release: the owner, the token
--          then for each acquisition: the owner, the TTL, the number of tokens
--          then the longest of the TTLs. No TTL is longer than the floor
-- Expects  now
-- Answer   one text for each request:
--            o                 done
--            g TOKEN TOKENS 0  granted
--            h LEFT            held for another LEFT ms
--            ?                 send the request to the full script
--          then, if the server was checked, "v NOW TTL TOKEN": at NOW this server was the one
--          that wrote last, the grace period was over for leases up to TTL, and TOKEN was the
--          last token

local numReleases, numAcquires = tonumber(ARGV[5]), tonumber(ARGV[6])
local answers, queueOffset = {}, 1 + 2 * numReleases
local anyQueue = redis.call('EXISTS',
  unpack(KEYS, queueOffset + 1, queueOffset + numReleases + numAcquires)) > 0

if numReleases > 0 then
  local held, deletions = -- held has the values of the locks, and then the records
    redis.call('MGET', unpack(KEYS, 2, 1 + 2 * numReleases)), {}
  for i = 1, numReleases do
    local owner, head = ARGV[5 + 2 * i], '{"token":' .. ARGV[6 + 2 * i] .. ','
    local record = held[numReleases + i]
    if held[i] == owner and (not record or string.sub(record, 1, #head) == head)
      and not (anyQueue and redis.call('EXISTS', KEYS[queueOffset + i]) == 1) then
      deletions[#deletions + 1] = KEYS[1 + i]
      deletions[#deletions + 1] = KEYS[1 + numReleases + i]
      answers[i] = 'o'
    else
      answers[i] = '?'
    end
  end
  if #deletions > 0 then redis.call('DEL', unpack(deletions)) end
end
if numAcquires == 0 then return answers end

local meta = redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x')
local lastToken = tonumber(meta[1]) or 0
local checked, refused
if now < tonumber(ARGV[3]) or now >= tonumber(ARGV[4]) then
  local ttl, start, unknown = tonumber(ARGV[#ARGV]), tonumber(meta[3]), tonumber(meta[4])
  if start and unknown and lastToken >= start and meta[2]
    and string.find(redis.call('INFO', 'server'), meta[2], 1, true)
    and start + 1000 * math.min(math.max(unknown, ARGV[1], math.min(ttl, 60000)), ARGV[2])
      <= now then
    checked = string.format('v %d %d', now, ttl)
  else
    refused = true -- the full script says why
  end
end

if not (lastToken < 9007199253692416) then refused = true end -- see exhausted in token.lua
local lockOffset, arg, granted, sum =
  queueOffset + numReleases + numAcquires, 6 + 2 * numReleases, {}, 0
for i = 1, numAcquires do
  local lock, owner = KEYS[lockOffset + i], ARGV[arg + 1]
  answers[numReleases + i] = '?'
  if not refused then
    if not redis.call('SET', lock, owner, 'PX', ARGV[arg + 2], 'NX') then
      local value = redis.pcall('GET', lock)
      if type(value) == 'string' and value ~= owner and string.sub(value, 1, 5) ~= 'snib:' then
        answers[numReleases + i] = 'h ' .. redis.call('PTTL', lock)
      end
    elseif anyQueue and redis.call('EXISTS', KEYS[queueOffset + numReleases + i]) == 1 then
      redis.call('DEL', lock) -- the waiters in the queue came first
    else
      granted[#granted + 1] = i
      sum = sum + ARGV[arg + 3]
    end
  end
  arg = arg + 3
end

if #granted > 0 then
  local token = math.max(lastToken + 1, now)
  lastToken = token + sum - 1
  redis.call('HSET', KEYS[1], 't', string.format('%d', lastToken))
  for g = 1, #granted do
    local i = granted[g]
    local tokens = ARGV[6 + 2 * numReleases + 3 * i]
    answers[numReleases + i] = string.format('g %d %s 0', token, tokens)
    token = token + tokens
  end
end
if checked then answers[#answers + 1] = string.format('%s %d', checked, lastToken) end
return answers
