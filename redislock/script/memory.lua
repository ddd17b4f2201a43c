-- Reads and changes what the store remembers of itself. A server that finds its own run_id there
-- wrote last; one that does not has restarted, was promoted, or has lost its memory.
--
-- KEYS[1]   a hash with the fields
--             t  the last fencing token
--             r  the run_id of the server that wrote last
--             c  the time when the server's memory begins, in microseconds
--             x  for how long from c leases may live that the memory does not contain, in ms
-- Provides  memory()               the values of t, r, c and x before; false for a missing one
--           setMeta(field, value)  changes a field, which batch.lua writes
--           changes                the changed fields and their values, in turn
--           nextToken()            the token of the next hold, or nil if there are no more tokens
--           lastToken              the last token that this call has used, or nil

local meta, lastToken
local changes = {}

local function memory()
  meta = meta or redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x')
  return meta
end

local function setMeta(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = type(value) == 'number' and string.format('%d', value) or value
end

-- Above 2^53 Lua would return the same token again and again. Only a wrong value that somebody
-- else wrote gets there. It may also be NaN, which is less than nothing.
local function nextToken()
  local last = lastToken or tonumber(memory()[1]) or 0
  if last < 9007199253692416 then return math.max(last + 1, now()) end
end
