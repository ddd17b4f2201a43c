// Package jobtest has what tests of backends do with a driver: they wait for a lock, and keep one.
// It also has the jobs that they give to other processes, in a [livetest.Child]: hold a lock, and
// contend for a lock that guards a file.
package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Job is something to do with a driver.
type Job struct {
	Role string // "hold" or "contend"
	Req  driver.Request

	// Rounds is how often a contender acquires the lock. The id is Req.ID followed by the
	// number of the round. File is the file that the lock guards.
	Rounds int
	File   string
}

// Do does the job until ctx is done.
func (j Job) Do(ctx context.Context, d driver.Driver) error {
	switch j.Role {
	case "hold":
		return j.hold(ctx, d)
	case "contend":
		return j.contend(ctx, d)
	default:
		return fmt.Errorf("there is no role %q", j.Role)
	}
}

// hold acquires the lock, says "held" and the token, and renews the lease until the
// process is told to end. When a renewal reports a loss, hold says "lost", and then
// "late" and the result of a release.
func (j Job) hold(ctx context.Context, d driver.Driver) error {
	l, err := d.Acquire(ctx, j.Req)
	if err != nil {
		return err
	}
	livetest.Say("held", l.Grant().Token)
	tick := time.NewTicker(j.Req.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.Renew(ctx, []driver.Lease{l})[0].Err; errors.Is(err, driver.ErrLost) {
				livetest.Say("lost", err)
				livetest.Say("late", l.Release(context.WithoutCancel(ctx)))
				return nil
			}
		case <-ctx.Done():
			return l.Release(context.WithoutCancel(ctx))
		}
	}
}

// contend acquires and releases the lock many times, appends its token to the
// file each time, and says "done".
func (j Job) contend(ctx context.Context, d driver.Driver) error {
	for i := range j.Rounds {
		req := j.Req
		req.ID += strconv.Itoa(i)
		l, err := d.Acquire(ctx, req)
		if err != nil {
			return err
		}
		if err := errors.Join(Append(j.File, l.Grant().Token), l.Release(ctx)); err != nil {
			return err
		}
	}
	livetest.Say("done")
	return nil
}

// Append appends a token to a file. If two processes do so at the same time, a token gets lost;
// if one of them is killed, none does. For that, Append replaces the whole file.
func Append(file string, token uint64) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next := fmt.Sprint(file, ".", os.Getpid())
	if err := os.WriteFile(next, fmt.Appendf(old, "%d\n", token), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// Rising checks that a file has at least the given number of tokens,
// each greater than the one before.
func Rising(t testing.TB, file string, least int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	if len(lines) < least {
		t.Errorf("the guarded file has %d tokens, want %d: two wrote it at once", len(lines), least)
	}
	last := uint64(0)
	for i, line := range lines {
		token, err := strconv.ParseUint(line, 10, 64)
		if err != nil || token <= last {
			t.Fatalf("token %d in the guarded file is %q, want more than %d", i+1, line, last)
		}
		last = token
	}
}
