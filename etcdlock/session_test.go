package etcdlock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestRevoked has an operator, or etcd, end a session.
func TestRevoked(t *testing.T) {
	t.Parallel()
	server := shared(t)
	client := dialShared(t)
	revoke := func(name string, place int) {
		t.Helper()
		server.Ctl("lease", "revoke", fmt.Sprintf("%x", leaseIn(t, keys(t, client, name)[place])))
	}
	t.Run("Holding", func(t *testing.T) {
		d := open(t, client)
		l1, lost1 := livetest.AcquireTold(t, d, request("holding", "a"))
		l2, lost2 := livetest.AcquireTold(t, d, request("holding too", "a"))
		lost := []<-chan error{lost1, lost2}
		revoke("holding", 0)
		for i, l := range []driver.Lease{l1, l2} {
			// Etcd says so, by a keep-alive or the deletion of the key. The holder's own clock would
			// say that no keep-alive was answered.
			select {
			case err := <-lost[i]:
				if !errors.Is(err, driver.ErrLost) || strings.Contains(err.Error(), "no keep-alive") {
					t.Errorf("OnLost was called with %v, want ErrLost, and what etcd says", err)
				}
			case <-time.After(livetest.Patience):
				t.Fatal("OnLost was not called")
			}
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
		w := livetest.Waiting(t, waits, request("waiting", "waiter"))
		next := livetest.Waiting(t, third, request("waiting", "third"))
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

// TestHungServer hangs a server for longer than a session: the holder learns of its loss by its
// own clock, before the server resumes.
func TestHungServer(t *testing.T) {
	server := etcdtest.Start(t)
	client := dial(t, server)
	d := open(t, client)
	l, lost := livetest.AcquireTold(t, d, request("hung", "a"))
	renewed := d.Renew(t.Context(), []driver.Lease{l})[0]
	if renewed.Err != nil {
		t.Fatalf("Renew = %v", renewed.Err)
	}
	machine := livetest.Lateness(t)
	server.Hang()
	hung := driver.Now() // no keep-alive that was sent later was answered
	livetest.AwaitLoss(t, lost, livetest.Patience)
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
	d := newDriver(t, dial(t, nil, proxy.Addr()), etcdlock.Timeout(time.Minute)) // it rarely sends keep-alives
	defer d.Close()
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

// TestTimeout checks the TTL that follows from the option: whole seconds, and 2 s at least.
func TestTimeout(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
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
