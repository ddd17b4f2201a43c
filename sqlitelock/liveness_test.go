//go:build linux

package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// wakeLimit is how soon the next waiter must be granted when a lock is freed. It takes a few
// milliseconds. A waiter that is not woken does not check by itself before that.
const wakeLimit = passTimeout * 4 / 5

// promptly repeats what takes longer than most: only a busy machine needs a second try.
func promptly(t *testing.T, most time.Duration, scenario func(t *testing.T) (took time.Duration)) {
	t.Helper()
	var took time.Duration
	for try := range 10 {
		if !t.Run(fmt.Sprint(try), func(t *testing.T) { took = scenario(t) }) || took <= most {
			return
		}
	}
	t.Errorf("it took longer than %v each time, the last time %v", most, took)
}

func request(id string) driver.Request {
	return driver.Request{Name: "a name", ID: id, TTL: time.Minute}
}

func requestTTL(id string, ttl time.Duration) driver.Request {
	req := request(id)
	req.TTL = ttl
	return req
}

func try(d *Driver, req driver.Request) (driver.Lease, error) {
	req.NoWait = true
	return d.Acquire(context.Background(), req)
}

// The functions that all tests of backends share.
var (
	acquire = livetest.Acquire
	release = livetest.Release
)

// awaitQueued returns when the waiter with the id is in the queue.
func awaitQueued(t testing.TB, d *Driver, id string) {
	t.Helper()
	livetest.Await(t, id+" in the queue", func() error {
		st, err := d.Status(context.Background(), "a name")
		if !slices.ContainsFunc(st.Waiters, func(w driver.Waiting) bool { return w.ID == id }) {
			return fmt.Errorf("the status is %+v, %w", st, err)
		}
		return nil
	})
}

// awaitGrant returns the lease, and how long after the call it was granted.
func awaitGrant(t testing.TB, w *livetest.Waiter) (driver.Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	l := w.Get(t)
	return l, w.At.Sub(began)
}

// holdingStatus returns the only holder that Status reports, and checks that List agrees.
func holdingStatus(t testing.TB, d *Driver) driver.Holding {
	t.Helper()
	st, err := d.Status(context.Background(), "a name")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v, want one holder", st, err)
	}
	err = d.List(context.Background(), "", func(listed driver.Status) bool {
		if len(listed.Holders) != 1 || listed.Holders[0].Inherited != st.Holders[0].Inherited {
			t.Errorf("List shows %+v, Status %+v", listed, st)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return st.Holders[0]
}

// TestWaitIsNoOutage has waiters that are not to retry while the store is unavailable. They wait
// for a holder all the same.
func TestWaitIsNoOutage(t *testing.T) {
	t.Parallel()
	d, req := open(t, newPath(t)), request("waiter")
	req.RetryTimeout = time.Nanosecond
	for range 10 {
		l := acquire(t, d, request("holder"))
		w := livetest.Waiting(t, d, req)
		release(t, l)
		release(t, w.Get(t))
	}
}

// TestSlowDiskKeepsPlace has the disk take longer for a waiter's round than a request waits for an
// answer. If the waiter left meanwhile, its grant would be undone, and its place be lost.
func TestSlowDiskKeepsPlace(t *testing.T) {
	t.Parallel()
	a := &attempt{d: open(t, newPath(t)), req: request("waiter"), ticket: 1}
	err := a.send(t.Context(), &op{run: func(*tx) error {
		time.Sleep(answerTimeout + time.Second) // the disk
		return nil
	}})
	if err != nil {
		t.Errorf("a slow round of a waiter = %v", err)
	}
}

// TestProcesses has many processes create the database and contend for one name. Each appends its
// token to a file while it holds the lock.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const procs, rounds = 8, 25
	path := newPath(t)
	file := path + ".log"
	var all []*livetest.Child
	for i := range procs {
		req := request("process " + strconv.Itoa(i) + " round ")
		all = append(all, livetest.StartChild(t, job{Role: "cycle", Req: req, Path: path, Rounds: rounds, File: file}))
	}
	for _, p := range all {
		p.Expect("ready")
	}
	for _, p := range all {
		p.End()
	}
	for _, p := range all {
		p.Expect("done")
		p.Wait()
	}
	text, err := os.ReadFile(file)
	must(t, err)
	lines := strings.Fields(string(text))
	if len(lines) != procs*rounds {
		t.Errorf("the guarded file has %d tokens, want %d: two wrote it at once", len(lines), procs*rounds)
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

func TestKilledHolder(t *testing.T) {
	t.Parallel()
	promptly(t, wakeLimit, func(t *testing.T) time.Duration {
		path := newPath(t)
		d := open(t, path)
		holder := start(t, "hold", path, request("holder"))
		holder.Expect("held")
		got := livetest.Waiting(t, d, request("next"))
		holder.Signal(syscall.SIGKILL)
		_, took := awaitGrant(t, got)
		t.Logf("granted %v after kill -9", took)
		return took
	})
}

func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	promptly(t, wakeLimit, func(t *testing.T) time.Duration {
		path := newPath(t)
		d := open(t, path)
		l := acquire(t, d, request("holder"))
		first := start(t, "hold", path, request("first"))
		awaitQueued(t, d, "first")
		got := livetest.Waiting(t, d, request("second"))
		first.Kill()
		release(t, l)
		_, took := awaitGrant(t, got)
		t.Logf("granted %v after the release", took)
		return took
	})
}

func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second // a busy machine renews in time
	promptly(t, ttl+wakeLimit, func(t *testing.T) time.Duration {
		path := newPath(t)
		d := open(t, path)
		holder := start(t, "hold", path, requestTTL("holder", ttl))
		holder.Expect("held")
		got := livetest.Waiting(t, d, request("next"))
		stopIdle(t, d, holder)
		l, took := awaitGrant(t, got)
		holder.Signal(syscall.SIGCONT)
		holder.Expect("lost")
		if late := holder.Expect("late"); late != driver.ErrLost.Error() {
			t.Errorf("late release by the holder that was stopped = %q, want ErrLost", late)
		}
		if err := d.Renew(context.Background(), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew after the late release of another = %v", err)
		}
		return took
	})
}

func TestStoppedWaiter(t *testing.T) {
	t.Parallel()
	promptly(t, wakeLimit, func(t *testing.T) time.Duration {
		path := newPath(t)
		d := open(t, path)
		l := acquire(t, d, request("holder"))
		first := start(t, "hold", path, request("first"))
		awaitQueued(t, d, "first")
		second := livetest.Waiting(t, d, request("second"))
		third := livetest.Waiting(t, d, request("third"))
		stopIdle(t, d, first)
		release(t, l)
		l, took := awaitGrant(t, second)
		t.Logf("the second was granted %v after the release", took)
		late := took - 2*passTimeout // as long as the first may leave the lock unused
		release(t, l)
		l, took = awaitGrant(t, third) // at once, as the first was passed before
		took = max(took, late)
		first.Signal(syscall.SIGCONT)
		release(t, l)
		first.Expect("held")
		return took
	})
}

// TestSleepingWaiters checks that requests that may not wait pass a waiter only if it has left the
// lock unused while awake: the first one after a second, one behind it after its sleep.
func TestSleepingWaiters(t *testing.T) {
	t.Parallel()
	d := open(t, newPath(t))
	var now time.Duration
	d.now = func() int64 { return int64(time.Hour + now) }
	for _, id := range []string{"first", "second"} {
		a := &attempt{d: d, req: request(id)} // it never looks
		must(t, d.do(t.Context(), &op{run: func(t *tx) error { return a.enqueue(t, new(outcome)) }}))
	}
	const called, slept = passTimeout, passTimeout + longestSleep // when the second was called, and must have woken
	for _, now = range []time.Duration{0, called, called + passTimeout, slept, slept + passTimeout} {
		_, err := try(d, request("another"))
		if free := now == slept+passTimeout; free != (err == nil) || !free && !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%v after the lock became free, Acquire = %v, want ErrHeld unless both were passed", now, err)
		}
	}
	for _, n := range []int{1, 60, 1000} {
		q := queue{waiters: make([]waiterRow, n)}
		if sleep, _ := q.nextCheck(d.side, 0); sleep > longestSleep {
			t.Errorf("behind %d waiters one sleeps for %v, want %v at most", n, sleep, longestSleep)
		}
	}
}

// stopIdle stops a process while it has no transaction open: with one, it would keep all others
// from the database.
func stopIdle(t *testing.T, d *Driver, p *livetest.Child) {
	t.Helper()
	livetest.Await(t, "process that is stopped between its transactions", func() error {
		p.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		other := request("another")
		other.Name = "another name"
		l, err := d.Acquire(ctx, other)
		if err != nil {
			p.Signal(syscall.SIGCONT)
			return err
		}
		return l.Release(t.Context())
	})
}

func TestInheritOutlivesWrapper(t *testing.T) {
	t.Parallel()
	promptly(t, wakeLimit, func(t *testing.T) time.Duration {
		// Long enough for a busy machine to inspect the lease of a living wrapper.
		const ttl = 6 * time.Second
		path := newPath(t)
		d := open(t, path)
		req := requestTTL("wrapper", ttl)
		wrapper := start(t, "wrap", path, req)
		child := int(wrapper.Number("child"))
		defer syscall.Kill(child, syscall.SIGKILL)
		if h := holdingStatus(t, d); h.Inherited || len(h.Heirs) > 0 {
			t.Errorf("while the process that took it lives, the hold is %+v", h)
		}
		wrapper.Kill()
		heirs := []driver.Holder{{PID: child, Label: "sleep"}}
		if h := holdingStatus(t, d); !h.Inherited || !slices.Equal(h.Heirs, heirs) {
			t.Errorf("with one heir, pid %d, the hold is %+v", child, h)
		}
		got := livetest.Waiting(t, d, request("next"))
		time.Sleep(ttl + ttl/2) // only waiting can show that nothing happens
		got.Running(t, "while a process lives that inherited the lock")
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, took := awaitGrant(t, got)
		t.Logf("granted %v after the end of the last heir", took)
		return took
	})
}

// TestInheritRelease checks that the lease owns its file: it is open while the lease is held, and
// a release closes it and frees the lock, also while a child has it.
func TestInheritRelease(t *testing.T) {
	t.Parallel()
	promptly(t, wakeLimit, func(t *testing.T) time.Duration {
		path := newPath(t)
		d := open(t, path)
		req := request("wrapper")
		l := acquire(t, d, req)
		got := livetest.Waiting(t, open(t, path), request("next"))
		f, err := d.Inherit(t.Context(), req.Name, l.ID())
		if err != nil {
			t.Fatalf("Inherit = %v", err)
		}
		if again, err := d.Inherit(t.Context(), req.Name, l.ID()); again != f || err != nil {
			t.Errorf("Inherit once more = %v, %v, want the same file", again, err)
		}
		heir, err := syscall.Dup(int(f.Fd())) // stands for the descriptor of a child
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(heir)
		if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew after Inherit = %v", err)
		}
		release(t, l)
		_, took := awaitGrant(t, got)
		if _, err := f.Stat(); err == nil {
			t.Error("the file is open after Release")
		}
		if f, err := d.Inherit(t.Context(), req.Name, l.ID()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Inherit after Release = %v, %v, want ErrLost", f, err)
		}
		return took
	})
}

// TestInheritClose checks that Close ends the lease, too, if no other process has the file.
func TestInheritClose(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := open(t, path)
	req := request("wrapper")
	l := acquire(t, d, req)
	if _, err := d.Inherit(t.Context(), req.Name, l.ID()); err != nil {
		t.Fatalf("Inherit = %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := try(open(t, path), request("next")); err != nil {
		t.Errorf("Acquire after Close = %v", err)
	}
}

// TestNotInheritable checks that there is no file for leases that do not end with this process.
func TestNotInheritable(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d, other := open(t, path), open(t, path)
	detached, elsewhere := request("detached"), request("elsewhere")
	detached.Detached, elsewhere.Name = true, "another name"
	for name, l := range map[string]driver.Lease{
		detached.Name: acquire(t, d, detached), elsewhere.Name: acquire(t, other, elsewhere),
	} {
		if f, err := d.Inherit(t.Context(), name, l.ID()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Inherit of the lease %s = %v, %v, want ErrUnsupported", l.ID(), f, err)
		}
	}
}

// restart returns a driver as a process opens it after a restart of the host, where the wall clock
// shows as much more than now as is given.
func restart(t *testing.T, path string, later time.Duration) *Driver {
	t.Helper()
	d := open(t, path)
	d.boot = "another boot"
	now := d.now
	d.now = func() int64 { return now() % int64(time.Hour) } // it began anew
	d.wall = func() int64 { return time.Now().Add(later).UnixNano() }
	return d
}

// TestOtherBoot checks that leases of processes end with the boot, but not because a container
// shows a boot id of its own.
func TestOtherBoot(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	before, later := open(t, path), restart(t, path, 0)
	l := acquire(t, before, request("before"))
	if _, err := try(later, request("later")); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "another boot id") {
		t.Fatalf("Acquire while processes of another boot id live = %v, want ErrInvalid that says so", err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := try(later, request("later"))
	if err != nil {
		t.Fatalf("Acquire after a reboot = %v, want a lease", err)
	}
	if got, old := next.Grant().Token, l.Grant().Token; got <= old {
		t.Errorf("token %d after a reboot, want more than %d", got, old)
	}
}

// TestDetachedOutlivesBoot restarts the host under leases that do not depend on a process. They
// last until their end by the wall clock, and never for longer than their TTL.
func TestDetachedOutlivesBoot(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Minute
	for _, tt := range []struct {
		name        string
		later, left time.Duration
	}{
		{"AtOnce", 0, ttl},
		{"Later", ttl / 2, ttl / 2},
		{"TooLate", ttl + time.Second, 0},
		{"ClockBack", -time.Hour, ttl},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := newPath(t)
			before := open(t, path)
			detached, keeps := requestTTL("detached", ttl), requestTTL("keeps", time.Minute)
			detached.Detached = true
			keeps.Name, keeps.MinHold = "kept", ttl
			l := acquire(t, before, detached)
			release(t, acquire(t, before, keeps))
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}

			d := restart(t, path, tt.later)
			list := map[string]driver.Status{}
			if err := d.List(t.Context(), "", func(st driver.Status) bool { list[st.Name] = st; return true }); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{detached.Name, keeps.Name} {
				other := request("other")
				other.Name = name
				_, err := try(d, other)
				if tt.left == 0 {
					if err != nil {
						t.Errorf("Acquire of %q after its end = %v", name, err)
					}
					continue
				}
				if !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Acquire of %q after a restart = %v, want ErrHeld", name, err)
				}
				holders := list[name].Holders
				if len(holders) != 1 || holders[0].Left > tt.left || holders[0].Left < tt.left-time.Minute {
					t.Errorf("the holders of %q are %v, want one with %v left, or little less", name, holders, tt.left)
				}
			}
			l = d.Lease(detached.Name, l.ID(), detached.TTL)
			if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; tt.left > 0 && err != nil {
				t.Errorf("Renew after a restart = %v, want nil", err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}

			d = restart(t, path, tt.later+ttl/4)
			d.boot = "a third boot"
			st, err := d.Status(t.Context(), keeps.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range st.Holders {
				if h.Left > tt.left-ttl/4 {
					t.Errorf("after another restart, %v later, %q has %v left, want at most %v", ttl/4, keeps.Name, h.Left,
						tt.left-ttl/4)
				}
			}
		})
	}
}

// TestLeftovers checks that rows of dead processes do not pile up under names that
// are never requested again.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	dead := open(t, path)
	for i := range 20 {
		req := request("dead")
		req.Name = "job " + strconv.Itoa(i)
		acquire(t, dead, req)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	d := open(t, path)
	for range 30 {
		release(t, acquire(t, d, request("alive")))
	}
	var rows int64
	if err := d.view(context.Background(), func(db *conn) error {
		return readInt(db, `SELECT count(*) FROM leases`, &rows)
	}); err != nil {
		t.Fatal(err)
	}
	if rows > 0 {
		t.Errorf("%d rows of a dead process are left after 30 grants", rows)
	}
}

// TestBusyDatabase checks that another program that writes to the database causes a
// delay and no error.
func TestBusyDatabase(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := open(t, path)
	other, err := connect(path, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if err := other.exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(ctx, request("impatient")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire while the database is locked = %v, want the context's error", err)
	}
	over := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { err := other.exec(`ROLLBACK`); over <- err })
	acquire(t, d, request("patient"))
	if err := <-over; err != nil {
		t.Error(err)
	}
	if st, err := d.Status(context.Background(), "a name"); err != nil || len(st.Holders) != 1 || len(st.Waiters) != 0 {
		t.Errorf("Status = %+v, %v; want the patient one and nobody else", st, err)
	}
}

// TestCancelledOpen checks that the context ends the wait of Open for a database that is busy, and
// for a process that is stopped while it creates the database.
func TestCancelledOpen(t *testing.T) {
	t.Parallel()
	for name, hinder := range map[string]func(*testing.T, string) func(){"Busy": keepBusy, "Creating": keepCreating} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			end := hinder(t, path)
			ctx, cancel := context.WithCancelCause(t.Context())
			over := errors.New("over")
			time.AfterFunc(50*time.Millisecond, func() { cancel(over) })
			if d, err := Open(ctx, path); !errors.Is(err, over) {
				t.Errorf("Open of a busy database, until the context ends = %v, %v, want the cause", d, err)
			}
			if d, err := Open(ctx, path); !errors.Is(err, over) {
				t.Errorf("Open after the end of the context = %v, %v, want the cause", d, err)
			}
			end()
			d, err := Open(t.Context(), path)
			if err != nil {
				t.Fatalf("Open of a database that is no longer busy = %v", err)
			}
			if err := d.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
	}
}

// keepBusy creates an empty database and keeps it busy until the end.
func keepBusy(t *testing.T, path string) (end func()) {
	t.Helper()
	if err := (&Driver{path: path, mode: 0o600}).createEmpty(); err != nil {
		t.Fatal(err)
	}
	other, err := connect(path, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if err := other.exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	return func() { other.close() }
}

// keepCreating does what a process does that creates a database, and goes no further until the end.
func keepCreating(t *testing.T, path string) (end func()) {
	t.Helper()
	if err := (&Driver{path: path, mode: 0o600}).makeFile(liveSuffix); err != nil {
		t.Fatal(err)
	}
	side, err := openSidecar(path + liveSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := side.lockWriter(); err != nil {
		t.Fatal(err)
	}
	return func() { side.close() }
}

// TestZeroOption checks that the zero Option is refused.
func TestZeroOption(t *testing.T) {
	t.Parallel()
	if d, err := Open(t.Context(), newPath(t), Option{}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Open = %v, %v, want ErrInvalid", d, err)
	}
}

// TestCancelledInTransaction cancels the context while the grant is being written.
func TestCancelledInTransaction(t *testing.T) {
	t.Parallel()
	d := open(t, newPath(t))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	now := d.now
	d.now = func() int64 { cancel(); return now() }
	if _, err := d.Acquire(ctx, request("gone")); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire whose context ended during the grant = %v, want Canceled", err)
	}
	if _, err := try(d, request("next")); err != nil {
		t.Errorf("Acquire after one whose context ended during the grant = %v", err)
	}
}

func TestInheritStoppedWrapper(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	promptly(t, ttl+wakeLimit, func(t *testing.T) time.Duration {
		path := newPath(t)
		d := open(t, path)
		req := requestTTL("wrapper", ttl)
		wrapper := start(t, "wrap", path, req)
		child := int(wrapper.Number("child"))
		defer syscall.Kill(child, syscall.SIGKILL)
		wrapper.Signal(syscall.SIGSTOP)
		_, took := awaitGrant(t, livetest.Acquiring(t, d, request("next")))
		return took
	})
}

// TestStartBehindWriter has requests wait for another process that writes. Their leases count from
// then on: counted from before the wait, a grant would be late at once, and asked for anew at the
// end of the queue.
func TestStartBehindWriter(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d, writer := open(t, path), open(t, path)
	l := acquire(t, d, request("renewed"))
	writing, end := make(chan struct{}), make(chan struct{})
	go writer.do(context.Background(), &op{run: func(*tx) error { close(writing); <-end; return nil }})
	<-writing
	renewed := make(chan driver.Renewal, 1)
	go func() { renewed <- d.Renew(context.Background(), []driver.Lease{l})[0] }()
	req := request("granted")
	req.Name = "another name"
	granted := livetest.Acquiring(t, d, req)
	time.Sleep(50 * time.Millisecond) // until both wait, or the test proves nothing
	free := driver.Now()
	close(end)
	if got := <-renewed; got.Err != nil || got.Start.Before(free) {
		t.Errorf("Renew behind a writer = %+v, want a Start after %v", got, free)
	}
	if got := granted.Get(t).Grant().Start; got.Before(free) {
		t.Errorf("Start of a grant behind a writer = %v, want one after %v", got, free)
	}
}

// A driver has a bounded number of threads that wait for bytes of others. Who watches one more is
// not lost: it has a timer.
func TestMostBlocked(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d1, d2 := open(t, path), open(t, path)
	held := acquire(t, d1, request("holder"))
	d2.side.mu.Lock()
	d2.side.blocked = maxBlocked
	d2.side.mu.Unlock()
	w := livetest.Waiting(t, d2, request("waiter"))
	d2.side.mu.Lock()
	if n := d2.side.blocked; n != maxBlocked {
		t.Errorf("%d threads wait, want %d at most", n, maxBlocked)
	}
	d2.side.mu.Unlock()
	release(t, held)
	if err := w.End(t); err != nil {
		t.Errorf("Acquire without a thread of its own = %v", err)
	}
}

// A driver unlocks the byte of a lease that has lapsed without a Release, although another one has
// deleted its row: threads may wait for the byte.
func TestLapsedByteIsUnlocked(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d1, d2 := open(t, path), open(t, path)
	req := request("lapses")
	req.TTL = 20 * time.Millisecond
	acquire(t, d1, req)
	at, _ := d1.leases.Load(leaseKey{req.Name, req.ID})
	release(t, acquire(t, d2, request("next"))) // waits for the end of the lease
	other := request("other")
	other.Name = "another name"
	release(t, acquire(t, d1, other))
	if d1.side.lockedHere(at.(int64)) {
		t.Error("the byte of a lease that has lapsed is still locked")
	}
}
