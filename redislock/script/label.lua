-- Changes the label of a hold.
--
-- KEYS      lock, grants, queue, requests
-- ARGV      id, token, the label as a JSON string
-- Expects   lock, grants, newEntry, findGrant
-- Provides  setLabel(id, token, label)
-- Answer    o or l, see full.lua

-- withLabel changes a grant. The label is the last field of a grant that has one. No other text of
-- a grant contains these quotes, because JSON escapes them.
local function withLabel(json, label)
  local at = string.find(json, ',"label":"', 1, true)
  return string.sub(json, 1, at and at - 1 or -2) .. ',"label":' .. label .. '}'
end

local function setLabel(id, token, label)
  local json, expiry = findGrant(id, token)
  if not json then return 'l' end
  if expiry then
    redis.call('HSET', grants, id, newEntry(expiry, withLabel(json, label)))
  else
    redis.call('SET', lock, withLabel(json, label), 'KEEPTTL')
  end
  return 'o'
end
