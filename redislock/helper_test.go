package redislock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// enough is how long a test waits for something that must happen soon, and before a lease of a
// minute ends.
const enough = 45 * time.Second

// soonEnough is how long something that happens at once may take on a busy machine. It is
// shorter than the 5 s after which a waiter that gets no message sends its request again.
const soonEnough = 3 * time.Second

// locker returns a Locker on d. Both are closed at the end of the test.
func locker(t testing.TB, d driver.Driver, opts ...snib.Option) *snib.Locker {
	t.Helper()
	l, err := snib.New(d, opts...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// distantTTL is one by whose end no test passes.
const distantTTL = 20 * time.Second

// request returns a request for an exclusive lock.
func request(name, id string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: ttl}
}

// A lockMode is a kind of lock, as the change that it makes to a request.
type lockMode struct {
	name string
	as   func(driver.Request) driver.Request
	opts []snib.Option
}

var modes = []lockMode{
	{"Exclusive", func(r driver.Request) driver.Request { return r }, nil},
	{"Shared", func(r driver.Request) driver.Request { r.Shared = true; return r }, []snib.Option{snib.Shared()}},
	{"Slots", func(r driver.Request) driver.Request { r.Slots = 2; return r }, []snib.Option{snib.Slots(2)}},
}

// inEachMode runs a test for each kind of lock, in parallel.
func inEachMode(t *testing.T, run func(t *testing.T, mode lockMode)) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			run(t, mode)
		})
	}
}

// The functions that all tests of backends share.
var (
	take = livetest.Acquire
	free = livetest.Release
)

// answerNow asks for a lock without waiting, until the server answers in time. It returns the
// answer, and the GraceError in it.
func answerNow(t testing.TB, d driver.Driver, req driver.Request) (grace *redislock.GraceError, answer error) {
	t.Helper()
	req.NoWait = true
	req.ID += " " + rand.Text() // its withdrawal may come late
	livetest.Await(t, "answer of the server", func() error {
		_, answer = d.Acquire(t.Context(), req)
		if errors.As(answer, &grace) || !errors.Is(answer, driver.ErrUnavailable) {
			return nil
		}
		return answer
	})
	return grace, answer
}

// refused checks that a lock is not free now.
func refused(t testing.TB, d driver.Driver, req driver.Request, when string) {
	t.Helper()
	if _, err := answerNow(t, d, req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("%s, Acquire(%q) for %s = %v, want ErrHeld", when, req.Name, req.ID, err)
	}
}

// withheld checks that the server grants nothing now although nobody is known to hold the lock.
// It returns how long that will last.
func withheld(t testing.TB, d driver.Driver, req driver.Request, when string) time.Duration {
	t.Helper()
	grace, err := answerNow(t, d, req)
	if grace == nil || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("%s, Acquire(%q) for %s = %v, want ErrUnavailable with a GraceError", when, req.Name, req.ID, err)
	}
	return grace.Left
}

// renew renews one lease.
func renew(t testing.TB, d driver.Driver, l driver.Lease) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	r := d.Renew(ctx, []driver.Lease{l})[0]
	if r.Err == nil && r.Start.IsZero() {
		t.Errorf("Renew gave neither a start nor an error")
	}
	return r.Err
}

// renewAgain renews one lease as the core does: it retries until the server answers. It returns
// nil or an error that matches ErrLost.
func renewAgain(t testing.TB, d driver.Driver, l driver.Lease) (answer error) {
	t.Helper()
	livetest.Await(t, "answer to a renewal", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer = d.Renew(ctx, []driver.Lease{l})[0].Err
		if errors.Is(answer, driver.ErrLost) {
			return nil
		}
		return answer
	})
	return answer
}

// A result is the outcome of an acquisition.
type result struct {
	lease driver.Lease
	err   error
	at    time.Time
}

// begin calls Acquire in another goroutine, until the test ends.
func begin(t testing.TB, d driver.Driver, req driver.Request) <-chan result {
	return beginWith(t.Context(), d, req)
}

func beginWith(ctx context.Context, d driver.Driver, req driver.Request) <-chan result {
	done := make(chan result, 1)
	go func() {
		l, err := d.Acquire(ctx, req)
		done <- result{l, err, time.Now()}
	}()
	return done
}

// wait acquires a lock that is not free, in another goroutine, and returns once the request is
// the n-th in the queue.
func wait(t testing.TB, d driver.Driver, req driver.Request, n int) <-chan result {
	t.Helper()
	done := begin(t, d, req)
	queued(t, d, req.Name, n)
	return done
}

// queued waits until n waiters are in the queue.
func queued(t testing.TB, in driver.Driver, name string, n int) {
	t.Helper()
	livetest.Await(t, fmt.Sprintf("queue of %d for %q", n, name), func() error {
		if got := len(status(t, in, name).Waiters); got != n {
			return fmt.Errorf("%d wait", got)
		}
		return nil
	})
}

func status(t testing.TB, in driver.Driver, name string) driver.Status {
	t.Helper()
	st, err := in.Status(t.Context(), name)
	if err != nil {
		t.Fatalf("Status(%q) = %v", name, err)
	}
	return st
}

// awaitWithdrawal waits until nobody holds the lock "job".
func awaitWithdrawal(t testing.TB, d driver.Driver) {
	t.Helper()
	livetest.Await(t, "withdrawal", func() error {
		if st := status(t, d, "job"); len(st.Holders) > 0 {
			return fmt.Errorf("the lock is held: %+v", st)
		}
		return nil
	})
}

// granted returns the lease of an acquisition and how long that took. It must succeed in time.
func granted(t testing.TB, done <-chan result, within time.Duration, who string) (driver.Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.err != nil {
			t.Fatalf("%s: Acquire = %v", who, r.err)
		}
		return r.lease, r.at.Sub(began)
	case <-timer.C:
		t.Fatalf("%s was not granted the lock within %v", who, within)
		return nil, 0
	}
}

// pending checks that an acquisition has not ended.
func pending(t testing.TB, done <-chan result, who, when string) {
	t.Helper()
	select {
	case r := <-done:
		t.Fatalf("%s has %v, %v %s, and should wait", who, r.lease, r.err, when)
	default:
	}
}

// follow makes a server the replica of another, and returns when it has the data of that.
func follow(t testing.TB, n, master *redistest.Node) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	n.Must("REPLICAOF", host, port)
	livetest.Await(t, "link", func() error {
		if link := info(t, n, "replication", "master_link_status"); link != "up" {
			return errors.New(link)
		}
		return nil
	})
}

// aged waits until a server is so old that a lease of 4 s from before its start is over. Its uptime
// may be a second too long.
func aged(t testing.TB, n *redistest.Node) {
	t.Helper()
	livetest.Await(t, "server that is old enough", func() error {
		if seconds, _ := strconv.Atoi(info(t, n, "server", "uptime_in_seconds")); seconds < 6 {
			return fmt.Errorf("it is %d seconds old", seconds)
		}
		return nil
	})
}

// info returns one field of INFO.
func info(t testing.TB, n *redistest.Node, section, field string) string {
	t.Helper()
	return n.Info(section)[field]
}

// keys returns all keys of a server except those in which the store describes itself, whose
// number is bounded.
func keys(t testing.TB, n *redistest.Node) []string {
	t.Helper()
	var all []string
	list, _ := n.Must("KEYS", "*").([]any)
	for _, key := range list {
		if name := fmt.Sprint(key); name != "snib.m" && !strings.HasPrefix(name, "snib.m:{") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// nothingLeft checks that all keys of locks disappear, and sooner than those that live longest
// would expire: the record of an exclusive hold, and the queue. On a busy machine, requests of
// acquisitions that were given up may still be under way.
func nothingLeft(t testing.TB, n *redistest.Node) {
	t.Helper()
	livetest.Await(t, "end of all keys", func() error {
		if left := keys(t, n); len(left) > 0 {
			return fmt.Errorf("keys left: %q", left)
		}
		return nil
	})
}

// token returns the token of a lease.
func token(l driver.Lease) uint64 { return l.Grant().Token }

// awaitClosed waits until a channel is closed.
func awaitClosed(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(enough)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("%s did not happen within %v", what, enough)
	}
}
