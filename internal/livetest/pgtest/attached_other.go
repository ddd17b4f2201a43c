//go:build !linux

package pgtest

// checkDetached returns nil: servers run on Linux only.
func checkDetached(string) error { return nil }
