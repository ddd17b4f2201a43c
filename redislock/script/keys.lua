-- Declares the keys of the request that is being served.
--
-- Provides  lock, grants, queue  the keys, see batch.lua

local lock, grants, queue
