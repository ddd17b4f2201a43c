-- Reads grants. A grant is a JSON object: the id of its request, the token, the time of the grant,
-- and what the request says of itself: rest, an object without its opening brace. All ids are in
-- JSON, with their quotes, so a grant is found by how it begins. It is the value of the lock's key
-- if it is exclusive. The grants of a shared lock or semaphore are in the hash grants, by id, each
-- after its end.
--
-- Provides  lock, grants, queue   the keys of the request that is being served, see batch.lua
--           grantHead(id)         how a grant with this id begins
--           numberIn(json, name)  a number of a grant: its ttl, minhold or since
--           errorText(failure)    the text of what pcall has caught

local lock, grants, queue

local function grantHead(id) return '{"snib":2,"id":' .. id .. ',' end

-- numberIn finds the field of the grant: in the texts of others, JSON escapes the quotes. To parse
-- the whole grant would take longer than all else that a release does.
local function numberIn(json, name)
  local _, before = string.find(json, '"' .. name .. '":', 1, true)
  return before and tonumber(string.match(json, '^%d+', before + 1)) or 0
end

local function errorText(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end
