-- Acquires a lock.
--
-- KEYS      lock, grants, queue
-- ARGV      id, mode, TTL in ms, number of tokens; 1 to wait in the queue, 2 if the request must be
--           there already, and otherwise 0; the request's JSON without its opening brace and its id
-- Provides  writeHold(...)  writes a hold that ends in ttl ms, where there is room for it. It has
--                           that many tokens, and returns the first
--           acquire(id, mode, ttl, tokens, waits, rest)
-- Answer    g, q, n, h, e or k, see batch.lua

local function writeHold(tokens, id, mode, ttl, rest)
  local token = nextToken() or contended().rare().refuse()
  lastToken = token + tokens - 1
  if isLong(ttl) then contended().rare().addLongLease(id, ttl) end
  local json = grantHead(id) .. string.format('"token":%d,"since":%d,', token, now()) .. rest
  if mode == 'x' then
    redis.call('SET', lock, json, 'PX', ttl)
  else
    contended().rare().writeShared(id, mode, ttl, json)
  end
  return token
end

local function acquire(id, mode, ttl, tokens, waits, rest)
  ttl, tokens = tonumber(ttl), tonumber(tokens)
  if waits == '2' or redis.call('EXISTS', lock, queue) > 0 then
    return contended().acquire(id, mode, ttl, tokens, waits, rest)
  end
  local wait = grace(ttl)
  if wait > 0 then return 'e ' .. wait end
  return string.format('g %d 0', writeHold(tokens, id, mode, ttl, rest))
end
