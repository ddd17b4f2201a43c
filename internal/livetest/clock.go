package livetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Clock is the wall clock of a server, which a test can step. The monotonic clock of the server stays as it is. It is
// made by the library libfaketime.
type Clock struct {
	t    testing.TB
	lib  string
	file string // says how far the clock is ahead
}

// NewClock returns a clock for a server that another account may run. It skips t if libfaketime is not installed, or fails
// it if SNIB_REQUIRE names the server.
func NewClock(t testing.TB, server string, account Account) *Clock {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		Missing(t, server, "libfaketime is not installed")
	}
	c := &Clock{t: t, lib: found[0], file: filepath.Join(account.Home(t), "ahead")}
	c.Set(0)
	return c
}

// Env is the environment of a server whose clock this is.
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.lib, "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
}

// Set sets the clock ahead of the true time, or behind it if ahead is negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	next := c.file + ".next"
	err := os.WriteFile(next, fmt.Appendf(nil, "%+.6f\n", ahead.Seconds()), 0o644) //nolint:gosec // the server's account reads it
	if err == nil {
		err = os.Rename(next, c.file) // no reader finds it empty
	}
	if err != nil {
		c.t.Fatalf("step a clock: %v", err)
	}
}
