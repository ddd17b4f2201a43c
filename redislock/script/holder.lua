-- Changes what a grant says of its holder.
--
-- KEYS      lock, grants
-- ARGV      id, the holder as JSON fields
-- Provides  setHolder(id, holder)
-- Answer    l or o, see batch.lua

-- withHolder changes a grant. The fields of the holder are its last ones, and begin with the pid.
-- No text of a grant contains these quotes, because JSON escapes them.
local function withHolder(json, holder)
  return string.sub(json, 1, string.find(json, ',"pid":', 1, true)) .. holder
end

local function setHolder(id, holder)
  local json, expiry = findGrant(id)
  if not json then return 'l' end
  if expiry then
    redis.call('HSET', grants, id, newEntry(expiry, withHolder(json, holder)))
  else
    redis.call('SET', lock, withHolder(json, holder), 'KEEPTTL')
  end
  return 'o'
end
