-- Reads requests and grants, and the entries of the hash grants: a time of 16 digits, in
-- microseconds, followed by a grant. Others may write to these keys too, so what snib can't have
-- written is treated as if it did not exist.
--
-- Provides  extendTo(key, ms)     makes a key last for at least ms
--           newEntry(time, json)  an entry
--           entryTime(entry)      its time; 0, which is long over, if it has none
--           entryJSON(entry)      its grant
--           parseRequest(text)    the request in a member of the queue or in a grant, or nil. Its
--                                 id is what stands before the fields: that of a member
--           parseGrant(json)      the same of a grant

local function extendTo(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

local function newEntry(at, json) return string.format('%016d', at) .. json end
local function entryTime(entry)
  return tonumber(string.match(entry, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d')) or 0
end
local function entryJSON(entry) return string.sub(entry, 17) end

-- The driver writes the fields of a request in this order. In other texts, JSON escapes the quotes.
-- To parse the whole object would take twice as long.
local fields =
  '"mode":"(%w+)","ttl":(%d+),"minhold":%d+,"tokens":(%d+),"attempt":"(%d+)","channel":"([^"]*)"'

local function parseRequest(text)
  local at, _, mode, ttl, tokens, attempt, channel = string.find(text, fields)
  if not at then return end
  ttl, tokens = tonumber(ttl), tonumber(tokens)
  if ttl < 1 or ttl > maxTTL or tokens < 1 or tokens > 4096
    or mode ~= 'x' and mode ~= 's' and not string.find(mode, '^[1-9]%d*$')
    or not string.find(channel, 'snib.c:', 1, true) then return end
  return {
    id = string.sub(text, 1, at - 2), mode = mode, ttl = ttl, tokens = tokens, attempt = attempt,
    channel = channel, text = text,
  }
end

local function parseGrant(json)
  return string.find(json, '^[^,]*,?"snib":2,') and parseRequest(json)
end
