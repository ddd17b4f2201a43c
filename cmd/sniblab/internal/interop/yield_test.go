package interop_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redislock"
)

// TestYieldToRedisPy checks that the Lock of redis-py, which polls, gets a lock that processes of
// snib hand on among themselves, if these have the option YieldToForeign. They get it back, too.
func TestYieldToRedisPy(t *testing.T) {
	l := python(t)
	w := newFixture(t)
	var lockers [2]*snib.Locker
	for i := range lockers {
		d, err := redislock.Open(t.Context(), rueidis.ClientOption{InitAddress: []string{w.server.Addr()}},
			redislock.YieldToForeign(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if lockers[i], err = snib.New(d, snib.TTL(longTTL)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lockers[i].Close() })
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- handOn(ctx, t, lockers) }()

	host, port, err := net.SplitHostPort(w.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	waiter := l("waiter.py", host, port, "job")
	in, out := startPiped(t, waiter)
	timer := time.AfterFunc(livetest.Patience, func() { waiter.Process.Kill() })
	defer timer.Stop()
	said, err := io.ReadAll(io.LimitReader(bufio.NewReader(out), int64(len("waits\ngot it\n"))))
	if err != nil || string(said) != "waits\ngot it\n" {
		t.Errorf("within %v redis-py said %q, %v; want that it got the lock", livetest.Patience, said, err)
	}
	in.Close()
	if err := waiter.Wait(); err != nil {
		t.Errorf("redis-py: %v", err)
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := lockers[0].Do(t.Context(), "job", func(context.Context, *snib.Lock) error { return nil }); err != nil {
		t.Error(err)
	}
}

// handOn has two Lockers pass a lock to each other until ctx is done. One releases only when the
// other waits, so that the lock is free only when a release leaves it free.
func handOn(ctx context.Context, t *testing.T, lockers [2]*snib.Locker) error {
	held, err := lockers[0].Acquire(ctx, "job")
	for i := 1; err == nil && ctx.Err() == nil; i++ {
		next, failed := (*snib.Lock)(nil), make(chan error, 1)
		go func() {
			var err error
			next, err = lockers[i%2].Acquire(context.WithoutCancel(ctx), "job")
			failed <- err
		}()
		select {
		case <-held.Wanted():
		case <-time.After(livetest.Patience):
			t.Error("the holder does not learn that the other Locker waits")
		}
		if err := held.Release(); err != nil {
			return err
		}
		err, held = <-failed, next
	}
	if err != nil {
		return err
	}
	return held.Release()
}
