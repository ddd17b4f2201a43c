package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// yieldWithin is within what time a client that polls must have got a lock that is left free every
// second. On a busy machine it misses some of these moments.
const yieldWithin = livetest.Patience

// polling tries to lock "job" as other libraries do, with a pause between two tries, until it has
// the lock or the test ends. Then it closes the channel.
func polling(t *testing.T, node *redistest.Node, pause time.Duration) (got <-chan struct{}) {
	t.Helper()
	client, err := rueidis.NewClient(at(node.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-stopped; client.Close() })
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			err := client.Do(ctx, client.B().Set().Key("job").Value("somebody").Nx().PxMilliseconds(600_000).Build()).Error()
			switch {
			case err == nil:
				close(done)
				return
			case !rueidis.IsRedisNil(err) && ctx.Err() == nil:
				t.Errorf("SET NX = %v", err)
				return
			}
			time.Sleep(pause) // as these libraries do
		}
	}()
	return done
}

// A relay passes the lock "job" from one driver to the next. It releases only when the next driver
// waits in the queue, so the key is never free unless a release leaves it free.
type relay struct {
	drivers [2]*redislock.Driver
	as      func(driver.Request) driver.Request
	held    driver.Lease
	n       int // the number of passes
}

func startRelay(t *testing.T, node *redistest.Node, as func(driver.Request) driver.Request,
	opts ...redislock.Option) *relay {
	t.Helper()
	r := relay{drivers: [2]*redislock.Driver{open(t, at(node.Addr()), opts...), open(t, at(node.Addr()), opts...)}, as: as}
	r.held = take(t, r.drivers[0], as(request("job", "owner 0", time.Minute)))
	return &r
}

// pass releases the lock and returns the acquisition that comes next.
func (r *relay) pass(t *testing.T) <-chan result {
	t.Helper()
	r.n++
	next := wait(t, r.drivers[r.n%2], r.as(request("job", fmt.Sprint("owner ", r.n), time.Minute)), 1)
	free(t, r.held)
	return next
}

// exclusives are the modes in which only one process holds the lock, so that others queue.
var exclusives = map[string]func(driver.Request) driver.Request{
	"Exclusive": func(r driver.Request) driver.Request { return r },
	"Slots":     func(r driver.Request) driver.Request { r.Slots = 1; return r },
}

// TestYieldToForeign checks that a client that polls every 100 ms gets the lock although other
// processes of snib wait at each release, and that these get it afterwards.
func TestYieldToForeign(t *testing.T) {
	t.Parallel()
	slack := livetest.Slack(t)
	for name, as := range exclusives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.Single(t))
			r := startRelay(t, node, as, redislock.YieldToForeign(time.Second))
			got := polling(t, node, 100*time.Millisecond)
			for began := time.Now(); time.Since(began) < yieldWithin; {
				next := r.pass(t)
				select {
				case won := <-next:
					if won.err != nil {
						t.Fatalf("Acquire = %v", won.err)
					}
					r.held = won.lease
					continue
				case <-got:
				}
				st := status(t, r.drivers[0], "job")
				if len(st.Holders) != 1 || st.Holders[0].ID != "somebody" || len(st.Waiters) != 1 {
					t.Errorf("Status = %+v, want the foreign holder and one waiter", st)
				}
				node.Must("DEL", "job") // without a message
				held, took := granted(t, next, enough, "the waiter behind the poller")
				if took > soonEnough+slack() {
					t.Errorf("the waiter noticed the end of a foreign hold after %v", took)
				}
				free(t, held)
				nothingLeft(t, node)
				return
			}
			t.Errorf("in %v and %d hand-overs the poller never got the lock", yieldWithin, r.n)
		})
	}
}

// TestForeignHolderOfSemaphore gives another library a lock for which a request for a semaphore
// waits. The request waits on, also when it is sent again.
func TestForeignHolderOfSemaphore(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	as := exclusives["Slots"]
	take(t, d, as(request("job", "holder", time.Minute)))
	waiter := wait(t, d, as(request("job", "waiter", time.Minute)), 1)
	node.Must("SET", "job", "somebody", "PX", 600_000)
	before := node.Calls()["evalsha"]
	node.Must("CLIENT", "KILL", "TYPE", "pubsub") // the driver asks again what it may have missed
	livetest.Await(t, "request that is sent again", func() error {
		if node.Calls()["evalsha"] == before {
			return errors.New("not yet")
		}
		return nil
	})
	queued(t, d, "job", 1)
	node.Must("DEL", "job")
	held, _ := granted(t, waiter, enough, "the waiter behind the foreign client")
	free(t, held)
}

// TestYieldWithoutWaiters checks that a lock is left to foreign clients also if nobody waits in its
// queue when it is released, as when goroutines of one process wait for each other. Otherwise the
// next of these would take it before a client that polls.
func TestYieldWithoutWaiters(t *testing.T) {
	t.Parallel()
	for name, as := range exclusives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.Single(t))
			d := open(t, at(node.Addr()), redislock.YieldToForeign(time.Second), redislock.GraceFloor(time.Minute))
			req := as(request("job", "first", time.Minute))
			req.Tokens = 2 // it can be handed over
			req, wanted := livetest.WithWanted(req)
			held := take(t, d, req)
			awaitClosed(t, wanted, "OnWanted") // the hold spans a whole second of the server's clock
			before := time.Now()
			free(t, held)
			next := take(t, d, as(request("job", "second", time.Minute)))
			if at := time.UnixMicro(int64(token(next))); at.Before(before.Add(300 * time.Millisecond)) {
				t.Errorf("the lock was granted %v after Release was called, want 300 ms or more", at.Sub(before))
			}
			free(t, next)
			nothingLeft(t, node)
		})
	}
}

// TestYieldEnds checks that waiters get the lock in their order, and soon, after it was left free
// for foreign clients that don't come. The first waiter is dead.
func TestYieldEnds(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()), redislock.YieldToForeign(time.Second))
	held := take(t, d, request("job", "first", time.Minute))
	dead := startChild(t, node.Addr(), request("job", "dead", time.Minute))
	queued(t, d, "job", 1)
	var waiters []<-chan result
	for i := range 3 {
		waiters = append(waiters, wait(t, open(t, at(node.Addr())), request("job", fmt.Sprint("waiter ", i), time.Minute),
			i+2))
	}
	dead.Kill()
	time.Sleep(time.Second) // the hold has to span a whole second of the server's clock
	before := time.Now()
	free(t, held)
	slack := livetest.Slack(t)
	for i, w := range waiters {
		held, took := granted(t, w, enough, fmt.Sprint("waiter ", i))
		if took > soonEnough+slack() {
			t.Errorf("waiter %d was granted the lock after %v", i, took)
		}
		if at := time.UnixMicro(int64(token(held))); i == 0 && at.Before(before.Add(300*time.Millisecond)) {
			t.Errorf("the lock was granted %v after Release was called, want 300 ms or more", at.Sub(before))
		}
		for _, later := range waiters[i+1:] {
			pending(t, later, "a later waiter", "too early")
		}
		free(t, held)
	}
	nothingLeft(t, node)
}

// TestYieldWithinProcess checks that goroutines of one process, which hand the lock over without a
// request to the store, let a client that polls have it.
func TestYieldWithinProcess(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	l := locker(t, open(t, at(node.Addr()), redislock.YieldToForeign(time.Second), redislock.GraceFloor(time.Minute)))
	ctx, cancel := context.WithTimeout(t.Context(), yieldWithin)
	defer cancel()
	ended := make(chan error, 4)
	for range cap(ended) {
		go func() {
			for {
				lock, err := l.Acquire(ctx, "job")
				if err != nil {
					ended <- err
					return
				}
				time.Sleep(time.Millisecond) // the work
				if err := lock.Release(); err != nil {
					t.Errorf("Release = %v", err)
				}
			}
		}()
	}
	select {
	case <-polling(t, node, 100*time.Millisecond):
	case <-ctx.Done():
		t.Errorf("in %v the poller never got the lock", yieldWithin)
	}
	cancel()
	for range cap(ended) {
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, snib.ErrUnavailable) {
			t.Errorf("Acquire = %v", err)
		}
	}
}

// TestStatusWhileYielding looks at a lock in whose queue there is only the mark that leaves it to
// foreign clients.
func TestStatusWhileYielding(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	node.Must("ZADD", "snib.q:{job}", -1, "yield")
	if st, err := d.Status(t.Context(), "job"); err != nil || len(st.Holders) != 0 {
		t.Errorf("Status = %+v, %v; want a free lock", st, err)
	}
}
