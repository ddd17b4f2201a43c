-- Puts a request for an exclusive lock into the queue behind an exclusive hold. It leaves every
-- other case to the full script.
--
-- KEYS     lock, record, queue, requests
-- ARGV[3]  the owner, and
-- ARGV[4]  the request's JSON without its opening brace
-- Expects  all files before this one
-- Answer   q, see full.lua
--          ?  send the request to the full script

local owner, rest = ARGV[3], ARGV[4]
lock, record, queue, requests = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local held = redis.call('MGET', lock, record)
local hold = held[2] and parseHold(held[2])
if not hold or hold.owner ~= held[1] or hold.owner == owner then return {'?'} end
local new, alone, channel = enqueue(owner, rest)
-- A holder whose grant says that it is wanted knows that.
if new and hold.wanted ~= 1 and hold.channel ~= channel then hint(hold, 'w') end
-- Without a renewal the lease lasts for this time. The waiter sends the request again when it is
-- over, and then learns of renewals.
local left = math.min(hold.ttl, math.ceil((hold.since - now) / 1000 + hold.ttl))
if left <= 0 then left = redis.call('PTTL', lock) end
return {string.format('q %d %d', left, alone and 1 or 0)}
