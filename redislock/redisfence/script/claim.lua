-- Claims the data. It does nothing beyond what admit.lua, which runs before, does.
--
-- KEYS    not used
-- ARGV    not used
-- Answer  OK

return 'OK'
