-- Reads and writes what the store remembers of itself. A server that finds its own run_id there
-- wrote last; one that does not has restarted, was promoted, or has lost its memory.
--
-- KEYS[1]   a hash with the fields
--             t  the last fencing token
--             r  the run_id of the server that wrote last
--             c  the time when the server's memory begins, in microseconds
--             x  for how long from c leases may live that the memory does not contain, in ms
-- ARGV      not used
-- Provides  memory()               the values of t, r, c and x before; false for a missing one
--           setMeta(field, value)  changes a field
--           saveMeta()             writes the changed fields
-- Answer    none: the files after this one answer

local meta
local changes = {}

local function memory()
  meta = meta or redis.call('HMGET', KEYS[1], 't', 'r', 'c', 'x')
  return meta
end

local function setMeta(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = type(value) == 'number' and string.format('%d', value) or value
end

local function saveMeta()
  if #changes > 0 then redis.call('HSET', KEYS[1], unpack(changes)) end
end
