-- Reads and writes entries of the hashes grants and requests: a time of 16 digits, in microseconds,
-- followed by a JSON object. Others may write to these keys too, so an object that snib can't have
-- written is treated as if it did not exist.
--
-- KEYS      requests
-- Expects   now, maxTTL, requests
-- Provides  extendTo(key, ms)     makes a key last for at least ms
--           newEntry(time, json)  an entry
--           entryTime(entry)      its time; 0, which is long over, if it has none
--           entryJSON(entry)      its object
--           parseRequest(json)    the request that a JSON object describes, or nil
--           parseGrant(json)      the grant that a JSON object describes, or nil
--           findRequest(id)       the request of a waiter, and its entry, or nil

local function extendTo(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

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
  if not ok or type(r) ~= 'table' or type(r.ttl) ~= 'number' or type(r.tokens) ~= 'number'
    or type(r.minhold) ~= 'number' then return end
  if not isText(r.attempt, '^%d+$')
    or not isText(r.mode, '^[xs]$') and not isText(r.mode, '^[1-9]%d*$') then return end
  if not isText(r.channel, '^[^{}]*snib%.c:[%w{}:]+$')
    or r.process and not isText(r.process, '^[^{}]*snib%.c:%w+$') then return end
  return r
end

-- findRequest also returns nil for a request that can't be true. serveQueue removes such a
-- request, so that it keeps nobody from the lock.
local function findRequest(id)
  local entry = redis.call('HGET', requests, id)
  local r = entry and parseRequest(entryJSON(entry))
  local head = '{"id":' .. id .. ','
  if not r or string.sub(entry, 17, 16 + #head) ~= head or entryTime(entry) > now() + 60000000 then
    return
  end
  if r.ttl < 1 or r.ttl > maxTTL or r.tokens < 1 or r.tokens > 4096 then return end
  return r, entry
end

local function parseGrant(json)
  local r = parseRequest(json)
  if r and r.snib == 2 and type(r.token) == 'number' and type(r.since) == 'number' then return r end
end
