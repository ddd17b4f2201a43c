-- Admits the node to its cluster.
--
-- KEYS      see node.lua
-- ARGV      see node.lua
-- Provides  admit()                            admits the node
--           raiseAll(floor, others, operator)  raises the node's counters

local function admit()
  redis.call('HSET', metaKey, 'cluster', ARGV[1], 'self', ARGV[2], 'admitted', run())
  redis.call('HDEL', metaKey, 'mark', 'since')
  return 'o'
end

-- raiseAll raises each counter at least to the floor, and to the counters in others, which were
-- read from other nodes. If operator is set, an operator gave the floor, and it is stored for
-- nodes that are admitted later. Otherwise it is a clock's, and counts for at most a minute ahead
-- of this node's clock.
local function raiseAll(floor, others, operator)
  local all, batch = {}, {}
  if operator and floor > 0 then all.c4096 = floor end
  if not operator then floor = math.min(floor, now + 60000000) end
  for stripe = 0, floor > 0 and 4095 or -1 do all['c' .. stripe] = floor end
  for stripe, to in string.gmatch(others, '(%d+) (%d+)') do
    all['c' .. stripe] = math.max(all['c' .. stripe] or 0, tonumber(to))
  end
  for name, to in pairs(all) do
    if to > (tonumber(redis.call('HGET', metaKey, name)) or 0) then
      batch[#batch + 1] = name
      batch[#batch + 1] = string.format('%d', to)
      if #batch == 1000 then
        redis.call('HSET', metaKey, unpack(batch))
        batch = {}
      end
    end
  end
  if #batch > 0 then redis.call('HSET', metaKey, unpack(batch)) end
end
