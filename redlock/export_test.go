package redlock

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
