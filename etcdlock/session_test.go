package etcdlock_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestRevoked has an operator, or etcd, end a session.
func TestRevoked(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	revoke := func(name string, place int) {
		t.Helper()
		server.Ctl("lease", "revoke", fmt.Sprintf("%x", leaseIn(t, keys(t, client, name)[place])))
	}
	t.Run("Holding", func(t *testing.T) {
		d := open(t, client)
		l1, lost1 := jobtest.AcquireTold(t, d, request("holding", "a"))
		l2, lost2 := jobtest.AcquireTold(t, d, request("holding too", "a"))
		lost := []<-chan error{lost1, lost2}
		revoke("holding", 0)
		for i, l := range []driver.Lease{l1, l2} {
			// A keep-alive reports it within a sixth of the timeout. By its own clock, the
			// holder would learn of it after five sixths.
			jobtest.AwaitLoss(t, lost[i], timeout*5/8)
			if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Release after the loss = %v, want ErrLost", err)
			}
			if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew after the loss = %v, want ErrLost", err)
			}
		}
		release(t, acquire(t, d, noWait("holding", "b"))) // in a new session
	})
	t.Run("Waiting", func(t *testing.T) {
		holds, waits, third := open(t, client), open(t, client), open(t, client)
		l := acquire(t, holds, request("waiting", "holder"))
		w := jobtest.Waiting(t, waits, request("waiting", "waiter"))
		next := jobtest.Waiting(t, third, request("waiting", "third"))
		revoke("waiting", 1)
		release(t, l)
		first := next.Get(t)
		w.Running(t, "while another holds")
		release(t, first)
		if got := w.Get(t); got.Grant().Token <= first.Grant().Token {
			t.Errorf("Token = %d after %d", got.Grant().Token, first.Grant().Token)
		} else {
			release(t, got)
		}
		awaitNoKeys(t, client, "waiting")
	})
}

// TestKeyDeleted deletes the key of a waiter, which queues again.
func TestKeyDeleted(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	d := open(t, client)
	l := acquire(t, d, request("deleted", "holder"))
	w := jobtest.Waiting(t, d, request("deleted", "waiter"))
	server.Ctl("del", keys(t, client, "deleted")[1])
	livetest.Await(t, "new key", func() error {
		if got := keys(t, client, "deleted"); len(got) != 2 {
			return fmt.Errorf("there are %q", got)
		}
		return nil
	})
	w.Running(t, "while another holds")
	release(t, l)
	release(t, w.Get(t))
}

// TestHungServer hangs a server for longer than a session: the holder learns of its loss by its
// own clock, before the server resumes.
func TestHungServer(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	d := open(t, client)
	l, lost := jobtest.AcquireTold(t, d, request("hung", "a"))
	renewed := d.Renew(t.Context(), []driver.Lease{l})[0]
	if renewed.Err != nil {
		t.Fatalf("Renew = %v", renewed.Err)
	}
	machine := livetest.Lateness()
	server.Hang()
	hung := driver.Now() // no keep-alive that was sent later was answered
	jobtest.AwaitLoss(t, lost, 2*timeout)
	lostAt := driver.Now()
	if late, own := lostAt.Sub(hung)-l.Grant().TTL, machine(); late > time.Second+10*own {
		t.Errorf("the holder was told %v after the end of its session, on a machine that was late by %v", late, own)
	}
	server.Resume()
	livetest.Await(t, "lease after the server has gone on", func() error {
		l, err := d.Acquire(t.Context(), noWait("hung", "b"))
		if err == nil {
			err = l.Release(t.Context())
		}
		return err
	})
}

// TestStartIsSendTime delays answers: a session counts from when a keep-alive was sent, not
// from when it was answered.
func TestStartIsSendTime(t *testing.T) {
	const delay = time.Second
	proxy := livetest.NewProxy(t, etcdtest.Start(t).Addr())
	d := open(t, dial(t, nil, proxy.Addr()))
	l := acquire(t, d, request("start", "a"))
	// A recent keep-alive would do for the renewal.
	livetest.Await(t, "keep-alive that is old", func() error {
		if driver.Now().Sub(l.Grant().Start) < 50*time.Millisecond {
			return errors.New("it is young")
		}
		return nil
	})
	proxy.Delay(0, delay)
	before := driver.Now()
	got := d.Renew(t.Context(), []driver.Lease{l})[0]
	if got.Err != nil {
		t.Fatalf("Renew = %v", got.Err)
	}
	answered := driver.Now()
	if took, age := answered.Sub(before), answered.Sub(got.Start); took < delay || age < delay {
		t.Errorf("Renew took %v with answers that are late by %v, and Start lies %v before its end; want it before the "+
			"request", took, delay, age)
	}
}

// TestOneSession holds many locks: a process has one etcd lease, and no goroutine for each of
// them.
func TestOneSession(t *testing.T) {
	server := etcdtest.Start(t)
	d := open(t, dial(t, server))
	acquire(t, d, request("first", "a"))
	before := runtime.NumGoroutine()
	var leases []driver.Lease
	for i := range 500 {
		leases = append(leases, acquire(t, d, request(fmt.Sprint("many ", i), "a")))
	}
	for i, got := range d.Renew(t.Context(), leases) {
		if got.Err != nil {
			t.Fatalf("Renew of lease %d = %v", i, got.Err)
		}
	}
	if more := runtime.NumGoroutine() - before; more > 5 {
		t.Errorf("500 locks cost %d goroutines", more)
	}
	if got := strings.Count(server.Ctl("lease", "list"), "\n"); got != 2 { // with a headline
		t.Errorf("etcd has %d leases, want one", got-1)
	}
	if err := leases[250].Release(t.Context()); err != nil {
		t.Fatalf("Release = %v", err)
	}
	for i, got := range d.Renew(t.Context(), leases) {
		if errors.Is(got.Err, driver.ErrLost) != (i == 250) {
			t.Errorf("Renew of lease %d, after the release of 250, = %v", i, got.Err)
		}
	}
}

// TestMinHoldOutlivesProcess ends a process after it has released a lock with MinHold.
func TestMinHoldOutlivesProcess(t *testing.T) {
	t.Parallel()
	client := dial(t, etcdtest.Start(t))
	d, other := open(t, client), open(t, client)
	req := request("kept", "a")
	req.MinHold = timeout + time.Second
	l := acquire(t, d, req)
	release(t, l)
	if err := d.Close(); err != nil {
		t.Fatalf("Close = %v", err)
	}
	checkHeld(t, other, "kept", "after the end of the process")
	acquire(t, other, request("kept", "b"))
	if held := driver.Now().Sub(l.Grant().Start); held < req.MinHold {
		t.Errorf("granted to another after %v, want %v at least", held, req.MinHold)
	}
}

// TestShownSince checks since when Status shows a lock as held. If the holder had to wait, that is
// known after the first renewal.
func TestShownSince(t *testing.T) {
	client := dial(t, etcdtest.Start(t))
	d, other := open(t, client), open(t, client)
	l := acquire(t, other, request("since", "holder"))
	w := jobtest.Waiting(t, d, request("since", "waiter"))
	waited := time.Now()
	livetest.Await(t, "long wait", func() error {
		if time.Since(waited) < 300*time.Millisecond {
			return errors.New("too early")
		}
		return nil
	})
	released := time.Now()
	release(t, l)
	got := w.Get(t)
	held := func() time.Duration {
		st, err := d.Status(t.Context(), "since")
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("Status = %+v, %v", st, err)
		}
		return st.Holders[0].Held
	}
	if h := held(); h != 0 {
		t.Errorf("Held = %v after a wait and before the first renewal, want 0: it is not known", h)
	}
	if err := d.Renew(t.Context(), []driver.Lease{got})[0].Err; err != nil {
		t.Fatalf("Renew = %v", err)
	}
	// It is not the time since it began to wait.
	if h := held(); h <= 0 || h > time.Since(released)+50*time.Millisecond {
		t.Errorf("Held = %v, %v after the release of the previous hold", h, time.Since(released))
	}
	if err := d.Renew(t.Context(), []driver.Lease{got})[0].Err; err != nil {
		t.Errorf("Renew after that was noted = %v", err)
	}
	release(t, got)
}

// TestTimeout checks the TTL that follows from the option: whole seconds, and 2 s at least.
func TestTimeout(t *testing.T) {
	t.Parallel()
	client := dial(t, etcdtest.Start(t))
	for asked, want := range map[time.Duration]time.Duration{
		time.Second: 2 * time.Second, 2500 * time.Millisecond: 3 * time.Second, time.Minute: time.Minute,
	} {
		d := newDriver(t, client, etcdlock.Timeout(asked))
		if got := acquire(t, d, request("timeout", "a")).Grant().TTL; got != want {
			t.Errorf("with a Timeout of %v the TTL is %v, want %v", asked, got, want)
		}
		if err := d.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
}
