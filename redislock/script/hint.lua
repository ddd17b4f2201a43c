-- Publishes hints to waiters and holders. A hint is the number of an attempt and a word. It grants
-- and ends nothing: its receiver asks the store. So an error, such as a missing permission, is
-- ignored.
--
-- KEYS      not used
-- ARGV      not used
-- Provides  wake(request)        word k: tells a waiter to send its request again. It returns how
--                                many connections heard it, or an error
--           hint(request, word)  word w: tells a holder that another process waits
--                                word b: tells a holder that its hold may have been broken
--           isListening(request) reports whether a waiter's process listens to this server
-- Answer    none: the files after this one answer

local function isSharded(request) return string.find(request.channel, '{', 1, true) end

local function wake(request)
  return redis.pcall(isSharded(request) and 'SPUBLISH' or 'PUBLISH', request.channel,
    request.attempt .. ' k')
end

local function hint(request, word)
  redis.pcall('PUBLISH', request.process or request.channel, request.attempt .. ' ' .. word)
end

-- The count that PUBLISH returns is no substitute: it comes too late, and it leaves out who
-- listens to a replica.
local function isListening(request)
  return redis.call('PUBSUB', isSharded(request) and 'SHARDNUMSUB' or 'NUMSUB',
    request.channel)[2] > 0
end
