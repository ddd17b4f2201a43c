-- Finds out whether this server wrote last, and from when on its memory is complete.
--
-- KEYS[2]   the long leases, see longlease.lua
-- ARGV      not used
-- Expects   now, meta, setMeta
-- Provides  identify()  sets start and unknown, and the fields r, c and x if the server changed
--           start       when the memory begins, in microseconds; nil before identify
--           unknown     for how long from start leases may live that the memory does not contain,
--                       in milliseconds; nil before identify
-- Answer    none: the files after this one answer

local start, unknown

local function identify()
  start, unknown = tonumber(meta[3]) or 0, tonumber(meta[4]) or 0
  local info = redis.call('INFO', 'server')
  if meta[2] and string.find(info, meta[2], 1, true) then return end
  if meta[2] then
    -- The server restarted with its memory, or was promoted. Writes that were not persisted or
    -- replicated in time are lost.
    start, unknown = now, math.max(0, math.ceil((start - now) / 1000 + unknown))
    for _, lease in ipairs(
      redis.call('ZRANGEBYSCORE', KEYS[2], string.format('%d', now), '+inf')) do
      unknown = math.max(unknown, tonumber(string.match(lease, '^%d+')) or 0)
    end
  else
    -- The server is new, or restarted without its memory. The uptime is a difference of whole
    -- seconds, so it may be up to one second too long.
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
    start, unknown = now - math.max(uptime - 1, 0) * 1000000, 0
  end
  setMeta('c', start)
  setMeta('x', unknown)
  setMeta('r', string.match(info, 'run_id:(%w+)'))
end
