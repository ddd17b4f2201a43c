-- Reads the node's own state, and decides whether the node serves requests. It serves them if it
-- was admitted to this cluster in this run of its server.
--
-- KEYS[1]   the node's state, a hash. Its fields are
--             admitted  the run_id under which the node was admitted
--             cluster   the cluster that it belongs to
--             self      its address, as the clients of the cluster know it
--             mark      "RUN TEXT": TEXT marks the node for this run, before it is admitted
--             since     "NODE:TIME …": what the clocks of the nodes showed after it was marked
--             c0 …      the counters of the locks; c4096 is not one of them, but the floor that
--                       an operator gave
-- KEYS      then for each of n requests: its lock
-- ARGV[1]   the cluster, and
-- ARGV[2]   the address of this node, as the client knows them
-- ARGV[3]   n
-- ARGV      then the fields of the n locks' counters; then the requests
-- Provides  metaKey, n  KEYS[1] and n
--           now         the server's clock, in microseconds
--           run()       the server's run_id. INFO takes longer than all else that a release does,
--                       so only what depends on it asks
--           meta        the values of admitted, cluster, self, mark, c4096 and of the n counters;
--                       false for a missing field
--           blank       whether the node has no state, so that it belongs to no cluster
--           ours        whether the node's cluster and address are those of the client
--           closed()    the answer to requests about locks unless the node is admitted, else nil:
--                         m SELF CLUSTER  the node belongs to another cluster
--                         u               the node is not admitted
--                         u blank         likewise, and it has no state

local metaKey, n = KEYS[1], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local runID
local function run()
  runID = runID or string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  return runID
end
local meta = redis.call('HMGET', metaKey,
  'admitted', 'cluster', 'self', 'mark', 'c4096', unpack(ARGV, 4, 3 + n))
local blank = not meta[2]
local ours = meta[2] == ARGV[1] and meta[3] == ARGV[2]
local function closed()
  if not ours and not blank then return 'm ' .. (meta[3] or '?') .. ' ' .. meta[2] end
  if not ours or meta[1] ~= run() then return ours and 'u' or 'u blank' end
end
