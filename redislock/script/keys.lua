-- Declares the keys of the request that is being served.
--
-- KEYS      not used
-- ARGV      not used
-- Provides  lock, grants, queue, requests  the keys, see full.lua
--           handlers                       the functions that serve requests, by code
--           absence                        after how long a waiter is removed that has not sent
--                                          its request again, in microseconds. Waiters send it
--                                          three times as often
--           handOverTTL                    how long a lock is held for a waiter that was handed it
--                                          and has not sent its request again, in milliseconds
-- Answer    none: the files after this one answer

local absence, handOverTTL = 15000000, 3000
local lock, grants, queue, requests
local handlers = {}
