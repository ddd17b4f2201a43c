-- Counts fencing tokens.
--
-- KEYS[1]   the server's memory, see memory.lua; field t is the last token
-- ARGV      not used
-- Expects   now, memory
-- Provides  last()           the last token that was used
--           exhausted()      reports whether there are no more tokens
--           reserve(tokens)  takes that many tokens and returns the first
--           grantAnswer(token, others)  the answer to a granted request
-- Answer    none: the files after this one answer

local lastToken

local function last()
  lastToken = lastToken or tonumber(memory()[1]) or 0
  return lastToken
end

-- Above 2^53 Lua would return the same token again and again. Only a wrong value that somebody
-- else wrote gets there. The comparison is negated because the value may be NaN.
local function exhausted() return not (last() < 9007199253692416) end

local function reserve(tokens)
  local token = math.max(last() + 1, now())
  lastToken = token + tokens - 1
  return token
end

local function grantAnswer(token, others)
  return string.format('g %d %d', token, others and 1 or 0)
end
