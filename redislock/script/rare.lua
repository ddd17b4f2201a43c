-- Opens the function that makes what few requests need.
--
-- Provides  rare()  the functions of the files up to made.lua that those before need, by name

  local seldom

  function rare()
    if seldom then return seldom end
