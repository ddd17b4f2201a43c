package redlock

// AlwaysPlain makes a driver try plain takes although others use the locks.
func AlwaysPlain(d *Driver) { d.conf.scriptedRounds = 0 }

// Topics returns the number of channels that a driver needs.
func Topics(d *Driver) int {
	l := &d.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.topics)
}

// KeepUnneeded sets to how many channels a connection stays subscribed that are not needed.
func KeepUnneeded(d *Driver, n int) {
	l := &d.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxUnneeded = n
}
