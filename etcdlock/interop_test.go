package etcdlock_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestStrangers has our locks and foreign ones on one name: they exclude each other, and wait
// in one queue.
func TestStrangers(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	foreign := []struct {
		name string
		lock func(t *testing.T, name string) (done <-chan error, unlock func())
	}{
		{"Mutex", func(t *testing.T, name string) (<-chan error, func()) { return mutexLock(t, client, name) }},
		{"Etcdctl", func(t *testing.T, name string) (<-chan error, func()) { return ctlLock(t, server, name) }},
	}
	for _, other := range foreign {
		t.Run(other.name, func(t *testing.T) {
			d := open(t, client)
			for _, name := range []string{"plain", "with/slash", "/path/", "日本語"} {
				name = other.name + name
				// A foreign client holds the lock, ours waits, and another foreign one waits
				// behind it.
				locked, unlock := other.lock(t, name)
				await(t, locked)
				checkHeld(t, d, name, "of a lock that a stranger holds")
				ours := livetest.Waiting(t, d, request(name, "ours"))
				behind, unlockBehind := other.lock(t, name)
				awaitKeys(t, client, name, 3)
				unlock()
				l := ours.Get(t)
				select {
				case err := <-behind:
					t.Fatalf("%q: a stranger's lock returned %v while ours is held", name, err)
				// Foreign clients do not poll; a wrong grant would come within milliseconds.
				case <-time.After(150 * time.Millisecond):
				}
				st, err := d.Status(t.Context(), name)
				if err != nil || len(st.Holders) != 1 || len(st.Waiters) != 1 || st.Holders[0].ID != "ours" {
					t.Errorf("Status = %+v, %v; want ours as holder, and a stranger who waits", st, err)
				}
				release(t, l)
				await(t, behind)
				checkHeld(t, d, name, "of a lock that went to a stranger")
				unlockBehind()
				release(t, acquire(t, d, request(name, "again")))
			}
		})
	}
}

func await(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("a stranger's lock = %v", err)
		}
	case <-time.After(livetest.Patience):
		t.Fatalf("a stranger's lock did not return within %v", livetest.Patience)
	}
}

// mutexLock takes a lock with package concurrency.
func mutexLock(t *testing.T, client *clientv3.Client, name string) (<-chan error, func()) {
	t.Helper()
	session, err := concurrency.NewSession(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	mutex := concurrency.NewMutex(session, name)
	done := make(chan error, 1)
	go func() { done <- mutex.Lock(t.Context()) }()
	return done, func() {
		if err := mutex.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}

// ctlLock takes a lock with etcdctl, which prints its key once it has the lock, and releases it
// on an interrupt.
func ctlLock(t *testing.T, server *etcdtest.Server, name string) (<-chan error, func()) {
	t.Helper()
	cmd := server.Command(t.Context(), "lock", name)
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, name+"/") {
			err = fmt.Errorf("etcdctl says %q", line)
		}
		done <- err
		_ = cmd.Wait() // its error says that it was interrupted
	}()
	unlock := func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		<-ended
	}
	t.Cleanup(unlock)
	return done, unlock
}

// TestStrangersShared has our readers and a foreign lock, which knows no readers.
func TestStrangersShared(t *testing.T) {
	t.Parallel()
	client := dialShared(t)
	d := open(t, client)
	reader := func(id string) driver.Request {
		req := request("shared", id)
		req.Shared = true
		return req
	}
	a, b := acquire(t, d, reader("a")), acquire(t, d, reader("b"))
	locked, unlock := mutexLock(t, client, "shared")
	awaitKeys(t, client, "shared", 3)
	late := livetest.Waiting(t, d, reader("late"))
	release(t, a)
	late.Running(t, "past a stranger who waits")
	release(t, b)
	await(t, locked)
	late.Running(t, "while a stranger holds")
	unlock()
	release(t, late.Get(t))
	slots := noWait("shared", "slots")
	slots.Slots = 2
	locked, unlock = mutexLock(t, client, "shared")
	await(t, locked)
	if _, err := d.Acquire(t.Context(), slots); !errors.Is(err, driver.ErrKind) {
		t.Errorf("Acquire of a slot of a stranger's lock = %v, want ErrKind", err)
	}
	unlock()
}
