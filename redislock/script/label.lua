-- Changes the label of a hold.
--
-- KEYS      lock, record, queue, requests
-- ARGV      owner, token, the label as a JSON string
-- Expects   record, entry.lua, findHold
-- Provides  setLabel(owner, token, label)
-- Answer    o or l, see full.lua

-- withLabel changes a record. The label is the last field of a record that has one. No other text
-- of a record contains these quotes, because JSON escapes them.
local function withLabel(json, label)
  local at = string.find(json, ',"label":"', 1, true)
  return string.sub(json, 1, at and at - 1 or -2) .. ',"label":' .. label .. '}'
end

local function setLabel(owner, token, label)
  local found, json, _, shared = findHold(owner, token)
  if not found then return 'l' end
  if not json then return 'o' end -- another client has deleted the record
  if shared then
    local expiry = entryTime(redis.call('HGET', record, owner))
    redis.call('HSET', record, owner, newEntry(expiry, withLabel(json, label)))
  else
    redis.call('SET', record, withLabel(json, label), 'KEEPTTL')
  end
  return 'o'
end
