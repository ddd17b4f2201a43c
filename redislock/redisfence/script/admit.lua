-- Lets a hold in, and raises the mark to it. If a later hold has claimed the data, or the mark
-- belongs to another lock, it answers with an error, and what follows does not run.
--
-- KEYS[1]   the mark, a hash with the fields lock, token and owner
-- ARGV[1]   the lock, and
-- ARGV[2]   the token, and
-- ARGV[3]   the owner of the hold
-- Provides  KEYS, ARGV  those of the caller's script, which follows
-- Answer    an error, FENCED TOKEN OWNER or FENCEDBY LOCK; otherwise the caller's script answers

local mark = redis.call('HMGET', KEYS[1], 'lock', 'token', 'owner')
if mark[1] and mark[1] ~= ARGV[1] then return redis.error_reply('FENCEDBY ' .. mark[1]) end
-- Tokens are compared as digits, because Lua represents numbers exactly only up to 2^53.
local token, last = ARGV[2], mark[2] or ''
if #token < #last
  or #token == #last and (token < last or token == last and ARGV[3] ~= mark[3]) then
  return redis.error_reply('FENCED ' .. last .. ' ' .. mark[3])
end
if token ~= last then
  redis.call('HSET', KEYS[1], 'lock', ARGV[1], 'token', token, 'owner', ARGV[3])
end
local KEYS, ARGV = {unpack(KEYS, 2)}, {unpack(ARGV, 4)}
