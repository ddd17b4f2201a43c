-- Publishes hints to waiters and holders. A hint is the number of an attempt and a word. It grants
-- and ends nothing: its receiver asks the store. So an error, such as a missing permission, is
-- ignored.
--
-- Provides  wake(request)        word k: tells a waiter to send its request again. It reports
--                                whether the waiter's process may have heard that
--           hint(request, word)  word w: tells a holder that another process waits
--                                word b: tells a holder that its hold may have been broken

-- wake is told how many listen to this server, to the channel or to a pattern. A blind request may
-- listen to another server.
local function wake(request)
  local isSharded = string.find(request.channel, '{', 1, true)
  local heard = redis.pcall(isSharded and 'SPUBLISH' or 'PUBLISH', request.channel,
    request.attempt .. ' k')
  return heard ~= 0 or string.find(request.text, '"blind":true', 1, true)
end

-- hint sends to the channel of the process, which is the waiters' channel without its hash tag.
local function hint(request, word)
  redis.pcall('PUBLISH', (string.gsub(request.channel, '{.*}:', '')),
    request.attempt .. ' ' .. word)
end
