package arena

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sniblock/snib/lab/contestant"
	"github.com/sniblock/snib/lab/judge"
	"github.com/sniblock/snib/lab/pattern"
)

// Museum returns the broken patterns, which are the controls of each run. command returns how to
// start the process that calls [ServePattern] with a name.
func Museum(command func(name string) []string) []Contestant {
	var all []Contestant
	for _, e := range exhibits() {
		c := e.Contestant
		c.Store, c.Command = cmp.Or(c.Store, Redis), command(c.Name)
		all = append(all, c)
	}
	return all
}

// Controls returns those of the museum that vouch for a run of some contestants: the patterns on
// Redis, and those on the stores of the contestants.
func Controls(museum, contestants []Contestant) []Contestant {
	return slices.DeleteFunc(slices.Clone(museum), func(c Contestant) bool {
		return c.Store != Redis && !slices.ContainsFunc(contestants, func(o Contestant) bool { return o.Store == c.Store })
	})
}

// An exhibit is a broken pattern of package pattern.
type exhibit struct {
	Contestant
	pattern pattern.Name
	ahead   time.Duration // of the clock of client B
}

func exhibits() []exhibit {
	const page, rows = "docs/from-setnx.md#", "docs/from-setnx.md#dead-row"
	return []exhibit{
		{Contestant{Name: "no-expiry", Title: "SETNX without a TTL", Guilt: "A holder that dies never frees its key.",
			Page: page + "setnx-expire", Faults: []string{"kill"}, Want: judge.Blocked}, pattern.NoExpiry, 0},
		{Contestant{Name: "setnx-expire", Title: "SETNX, then EXPIRE", Guilt: "A client that dies between the two commands leaves a key without an end.",
			Page: page + "setnx-expire", Faults: []string{"crash"}, Want: judge.Blocked}, pattern.SetnxExpire, 0},
		{Contestant{Name: "get-set", Title: "GET, then SET", Guilt: "Two clients see that the lock is free, and both take it.",
			Page: page + "get-set", Faults: []string{"delay"}, Want: judge.Overlap}, pattern.GetSet, 0},
		{Contestant{Name: "del-anothers", Title: "SET NX PX, then DEL", Guilt: "A client that releases late deletes the lock of the next holder, and a third one gets in.",
			Page: page + "del-anothers", Faults: []string{"slow-release"}, Want: judge.Overlap}, pattern.Del, 0},
		{Contestant{Name: "get-del", Title: "SET NX PX, then GET and DEL", Guilt: "The lock changes hands between the look and the DEL.",
			Page: page + "get-del", Faults: []string{"slow-release"}, Want: judge.Overlap}, pattern.GetDel, 0},
		{Contestant{Name: "getset-timestamp", Title: "GETSET of a time", Guilt: "The clock of one client is ahead by two TTLs, so it takes over locks that are not over.",
			Page: page + "getset-timestamp", Faults: []string{"delay"}, Want: judge.Overlap}, pattern.Getset, 2 * TTL},
		{Contestant{Name: "no-renewal", Title: "SET NX PX without renewal", Guilt: "The work takes longer than the TTL.",
			Page: page + "no-renewal", Faults: []string{}, Work: 3 * TTL / 2, Want: judge.Overlap}, pattern.SetNX, 0},
		{Contestant{Name: "revival", Title: "SET NX PX, renewed by SET", Guilt: "After a pause, the holder renews a lock that is another's by now, and takes it away.",
			Page: page + "no-renewal", Faults: []string{"pause"}, Want: judge.Overlap}, pattern.Revived, 0},
		{Contestant{Name: "no-token", Title: "SET NX PX, renewed by a script", Guilt: "The lock is renewed, and its holder knows when it is over. But a write that is late " +
			"has no token by which the resource could refuse it.", Page: page + "paused-client", Faults: []string{"late-write"}, Want: judge.Unfenced}, pattern.Renewed, 0},
		{Contestant{Name: "row-no-expiry", Title: "INSERT of a row, then DELETE", Guilt: "A holder that dies leaves its row, which has no end.",
			Store: Postgres, Page: rows, Faults: []string{"kill"}, Want: judge.Blocked}, pattern.InsertRow, 0},
		{Contestant{Name: "row-client-clock", Title: "a row with the end of the lease", Guilt: "The clock of one client is ahead by two TTLs, so it takes over locks that are not over.",
			Store: Postgres, Page: rows, Faults: []string{"delay"}, Want: judge.Overlap}, pattern.LeaseRow, 2 * TTL},
	}
}

// ServePattern is the process of a contestant of the [Museum].
func ServePattern(name string, in io.Reader, out io.Writer) error {
	for _, e := range exhibits() {
		if e.Name == name {
			return contestant.Serve(in, out, e.open)
		}
	}
	return fmt.Errorf("there is no contestant %q", name)
}

// open connects the client of a pattern.
func (e exhibit) open(ctx context.Context, m contestant.Message) (contestant.Locker, error) {
	s := pattern.Spec{
		Pattern: e.pattern, URLs: []string{m.URL}, Client: m.Client, TTL: time.Duration(m.TTL) * time.Millisecond, Zero: time.Unix(0, 0),
	}
	if m.Client[0] == 'B' {
		s.Ahead = e.ahead
	}
	c, err := pattern.Open(ctx, s, untraced{})
	if err != nil {
		return nil, err
	}
	return patternLocker{c}, nil
}

// untraced is a [pattern.Tracer] that nobody reads.
type untraced struct{}

func (untraced) Before(string)        {}
func (untraced) After(string, string) {}
func (untraced) Renewed()             {}
func (untraced) Lost(string)          {}

// A patternLocker is the lock of a pattern. It has one hold at a time.
type patternLocker struct{ client *pattern.Client }

// retryInterval is how often a pattern tries to get a lock that is taken.
const retryInterval = 10 * time.Millisecond

// Acquire implements [contestant.Locker].
func (l patternLocker) Acquire(ctx context.Context, wait time.Duration) (contestant.Hold, error) {
	for end := time.Now().Add(wait); ; {
		held, err := l.client.Try(ctx)
		switch {
		case err != nil:
			return nil, err
		case held:
			return patternHold(l), nil
		case time.Now().After(end):
			return nil, contestant.ErrDenied
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// A patternHold is a hold of a pattern.
type patternHold struct{ client *pattern.Client }

// Token implements [contestant.Hold].
func (patternHold) Token() uint64 { return 0 }

// Held implements [contestant.Hold].
func (h patternHold) Held() bool {
	return h.client.Held == nil || !errors.Is(h.client.Held(), pattern.ErrRefused)
}

// Lost implements [contestant.Hold].
func (patternHold) Lost() <-chan struct{} { return nil }

// Release implements [contestant.Hold].
func (h patternHold) Release(ctx context.Context) error { return h.client.Release(ctx) }
