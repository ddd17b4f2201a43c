package redlock

// AlwaysPlain makes a driver try plain takes although others use the locks.
func AlwaysPlain(d *Driver) { d.conf.scriptedRounds = 0 }
