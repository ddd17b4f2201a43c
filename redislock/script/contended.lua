-- Opens the function that makes what requests for a lock need that is not free. Redis makes each
-- function of a script anew in every call, which takes longer than all commands of a release. So
-- the files before this one have what takes a free lock and frees it; those up to rare.lua have
-- what takes a held one and hands it over; and those up to made.lua have the rest.
--
-- Provides  contended()  the functions of the files up to made.lua that those before need, by name

local held

function contended()
  if held then return held end
  local rare
