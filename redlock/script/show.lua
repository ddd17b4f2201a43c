-- Describes the node, its locks and its counters.
--
-- KEYS      see node.lua
-- ARGV      see node.lua
-- Provides  admitted                      whether the node is admitted
--           mark                          the text that marks the node for this run, or nil
--           nodeState()                   the node's state, as JSON
--           lockState(lock, waitersKey)   a lock and its waiters, as JSON; if the node is not
--                                         admitted, closed has the answer that says so
--           counters()                    1 if the node is admitted, otherwise 0; then
--                                         "STRIPE COUNTER" for each counter that is not zero

local admitted = not closed()
local mark = meta[4] and string.match(meta[4], '^' .. run() .. ' (.*)$') or nil

local function nodeState()
  return cjson.encode({
    run = run(), admitted = meta[1] or '', mark = mark or '',
    cluster = meta[2] or '', self = meta[3] or '', now = string.format('%d', now),
    since = mark and redis.call('HGET', metaKey, 'since') or '',
  })
end

local function lockState(lock, waitersKey)
  local kind = redis.call('TYPE', lock).ok
  local seen = {kind = kind, left = redis.call('PTTL', lock), now = string.format('%d', now)}
  seen.closed = closed()
  if kind == 'string' then seen.value = redis.call('GET', lock) end
  local waiters = redis.pcall('HVALS', waitersKey)
  if waiters.err then waiters = {} end -- the key is of another type, so it is not ours
  for i = #waiters, 1, -1 do
    if (tonumber(string.sub(waiters[i], 1, 16)) or 0) + 15000000 < now then
      table.remove(waiters, i)
    end
  end
  if #waiters > 0 then seen.line = waiters end
  return cjson.encode(seen)
end

local function counters()
  local all, out = redis.call('HGETALL', metaKey), {admitted and '1' or '0'}
  for i = 1, #all, 2 do
    local stripe = string.match(all[i], '^c(%d+)$')
    if stripe then
      out[#out + 1] = stripe .. ' '
        .. (string.gsub(all[i + 1] == '' and '_' or all[i + 1], '%s', '_'))
    end
  end
  return table.concat(out, ' ')
end
