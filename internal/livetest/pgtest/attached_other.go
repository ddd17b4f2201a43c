//go:build !linux

package pgtest

// Servers run on Linux only.
func checkDetached(string) error { return nil }
func removeMemory(string)        {}
