-- Claims the data. It does nothing beyond what admit.lua, which runs before, does.
--
-- Answer  OK

return 'OK'
