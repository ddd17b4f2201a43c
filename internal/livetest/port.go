package livetest

import "testing"

// FreePort returns a port of 127.0.0.1 on which a server can listen, and which
// nobody else gets until t ends, not even while the server is down. The same is true
// of the ports at the given offsets from it.
func FreePort(t testing.TB, offsets ...int) int {
	t.Helper()
	port, err := freePort(t, offsets)
	Must(t, err, "find a free port")
	return port
}

// freePort tries until a port and those at the offsets are free.
func freePort(t testing.TB, offsets []int) (port int, err error) {
	for range 100 {
		if port, err = reservePorts(t, offsets); err == nil {
			return port, nil
		}
	}
	return 0, err
}

// reservePorts reserves any port, and those at the offsets from it.
func reservePorts(t testing.TB, offsets []int) (port int, err error) {
	port, release, err := reservePort(0)
	if err != nil {
		return 0, err
	}
	t.Cleanup(release)
	for _, offset := range offsets {
		_, release, err := reservePort(port + offset)
		if err != nil {
			return 0, err
		}
		t.Cleanup(release)
	}
	return port, nil
}
