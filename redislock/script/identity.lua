-- Notes that another server wrote last, and from when on the memory of this one is complete.
--
-- KEYS[2]   the long leases, see longlease.lua
-- ARGV[3]   1 if grants and renewals count only when they are in the append-only file (DurableAOF)
-- Provides  identify(info)  sets start and unknown, and the fields r, c and x. The argument is what
--                           INFO says of the server

local function says(section, line)
  return string.find(redis.call('INFO', section), '\n' .. line .. '\r\n', 1, true)
end

local function identify(info)
  setMeta('r', string.match(info, 'run_id:(%w+)'))
  local knew = memory()[2]
  -- A server that was a replica may lack any write of the one that it replaced, or all of them. It
  -- forgets that after repl-backlog-ttl, an hour, in which leases of the old one end.
  local wasReplica = not says('replication', 'role:master')
    or not says('replication', 'second_repl_offset:-1')
  -- With DurableAOF, a server that read the file, and not a snapshot, has all grants and renewals
  -- that count. If the file was switched on, or written anew, since then, nobody can tell.
  if knew and not wasReplica and ARGV[3] == '1'
    and says('persistence', 'aof_enabled:1') and says('persistence', 'aof_rewrites:0') then
    return
  end
  if knew or wasReplica then
    -- Writes that were not persisted or replicated in time are lost.
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
