-- Notes that another server wrote last, and from when on the memory of this one is complete.
--
-- KEYS[2]   the long leases, see longlease.lua
-- ARGV[3]   1 if grants and renewals count only when they are in the append-only file (DurableAOF)
-- Provides  identify(info)  sets start and unknown, and the fields r, c and x. The argument is what
--                           INFO says of the server

-- keptAll reports whether the server has restarted with all grants and renewals that count. It has
-- read the append-only file then, and not a snapshot, and has not been a replica: one that is
-- promoted may lack the last writes of the server that it replaces. If the file was switched on, or
-- written anew, since then, that can't be told any more.
local function keptAll()
  if ARGV[3] ~= '1' then return false end
  local info = redis.call('INFO', 'replication') .. redis.call('INFO', 'persistence')
  local lines = {'role:master', 'second_repl_offset:-1', 'aof_enabled:1', 'aof_rewrites:0'}
  for _, line in ipairs(lines) do
    if not string.find(info, '\n' .. line .. '\r\n', 1, true) then return false end
  end
  return true
end

local function identify(info)
  setMeta('r', string.match(info, 'run_id:(%w+)'))
  local knew = memory()[2]
  if knew and keptAll() then return end
  if knew then
    -- The server restarted with its memory, or was promoted. Writes that were not persisted or
    -- replicated in time are lost.
    start, unknown = now(), math.max(0, math.ceil((start - now()) / 1000 + unknown))
    for _, lease in ipairs(
      redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now()), '+inf')) do
      unknown = math.max(unknown, tonumber(string.match(lease, '^%d+')) or 0)
    end
  else
    -- The server is new, or restarted without its memory. The uptime is a difference of whole
    -- seconds, so it may be up to one second too long.
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
    start, unknown = now() - math.max(uptime - 1, 0) * 1000000, 0
  end
  setMeta('c', start)
  setMeta('x', unknown)
end
