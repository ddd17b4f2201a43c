package etcdlock_test

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// manyHolds is more than one request can check.
const manyHolds = 150

// manyLeases are leases, and what their holders are told.
type manyLeases struct {
	leases []driver.Lease
	losses []<-chan error
}

// acquireMany acquires locks named 0, 1 and so on.
func acquireMany(t *testing.T, d driver.Driver, n int) (m manyLeases) {
	t.Helper()
	for i := range n {
		l, lost := livetest.AcquireTold(t, d, request(fmt.Sprint(i), "a"))
		m.leases, m.losses = append(m.leases, l), append(m.losses, lost)
	}
	return m
}

// TestManyHolds checks that holds cost no goroutines, and that a renewal of all finds out which of
// them was broken.
func TestManyHolds(t *testing.T) {
	server := etcdtest.Start(t)
	client, operator := dial(t, server), dial(t, server)
	d := newDriver(t, client, etcdlock.Timeout(5*time.Minute))
	t.Cleanup(func() { d.Close() })
	acquire(t, d, request("first", "a"))
	awaitWatchCount(t, server, 1)
	before := runtime.NumGoroutine()
	m := acquireMany(t, d, 3*manyHolds)
	awaitWatchCount(t, server, 1+3*manyHolds)
	livetest.Await(t, "no goroutines for holds", func() error { // those of calls that are under way end
		if got := runtime.NumGoroutine() - before; got > 10 {
			return fmt.Errorf("%d holds cost %d", len(m.leases), got)
		}
		return nil
	})
	for i := range 50 {
		if _, err := operator.Delete(t.Context(), keys(t, operator, fmt.Sprint(i))[0]); err != nil {
			t.Fatal(err)
		}
		livetest.RenewAll(t, d) // at once: the event may be on its way
		livetest.CheckOnlyLost(t, m.losses, i)
	}
	// Holders of leases that are released while all are renewed are told nothing.
	var releasing sync.WaitGroup
	for _, l := range m.leases[50:] {
		releasing.Go(func() { release(t, l) })
	}
	for range 10 {
		livetest.RenewAll(t, d)
	}
	releasing.Wait()
	livetest.CheckOnlyLost(t, m.losses, -1)
}

// TestRenewalOfMany deletes the key of one of many holds while the stream of watches reports
// nothing, as on a member that hangs. The renewal of all finds out which one is lost.
func TestRenewalOfMany(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	operator := dial(t, server)
	var gate sync.RWMutex // write-locked while no watch reports anything
	client := dialAs(t, "", "", []string{server.Addr()}, grpc.WithChainStreamInterceptor(holdAnswers("/etcdserverpb.Watch/Watch", &gate)))
	d := newDriver(t, client, etcdlock.Timeout(5*time.Minute))
	t.Cleanup(func() { d.Close() })
	m := acquireMany(t, d, manyHolds)
	awaitWatchCount(t, server, manyHolds)
	gate.Lock()
	defer gate.Unlock()
	if _, err := operator.Delete(t.Context(), keys(t, operator, "7")[0]); err != nil {
		t.Fatal(err)
	}
	livetest.RenewAll(t, d)
	livetest.CheckOnlyLost(t, m.losses, 7)
}

// TestWatchEnds has the stream of watches fail at the moment in which the key of one of many holds
// is deleted, so that it does not tell of that. A renewal of all finds out. The next stream tells
// of the next deletion, and of one that no renewal has looked for.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*etcdserverpb.WatchResponse) error{
		"Compacted": func(resp *etcdserverpb.WatchResponse) error {
			resp.Canceled, resp.CompactRevision, resp.Events = true, resp.Header.Revision, nil
			return nil
		},
		"Refused": func(resp *etcdserverpb.WatchResponse) error {
			resp.Created, resp.Canceled, resp.WatchId, resp.Events = true, true, -1, nil
			return nil
		},
		"Cut": func(*etcdserverpb.WatchResponse) error { return io.ErrUnexpectedEOF },
	} {
		t.Run(name, func(t *testing.T) {
			server := etcdtest.Start(t)
			operator := dial(t, server)
			var ending atomic.Bool // the next event ends the stream
			client := dialAs(t, "", "", []string{server.Addr()},
				grpc.WithChainStreamInterceptor(alterAnswers("/etcdserverpb.Watch/Watch", func(m any) error {
					if resp := m.(*etcdserverpb.WatchResponse); len(resp.Events) > 0 && ending.CompareAndSwap(true, false) {
						return end(resp)
					}
					return nil
				})))
			d := newDriver(t, client, etcdlock.Timeout(5*time.Minute))
			t.Cleanup(func() { d.Close() })
			m := acquireMany(t, d, manyHolds)
			awaitWatchCount(t, server, manyHolds)
			for i, renewed := range []bool{true, false, false} {
				ending.Store(i < 2)
				if _, err := operator.Delete(t.Context(), keys(t, operator, fmt.Sprint(i))[0]); err != nil {
					t.Fatal(err)
				}
				if renewed {
					livetest.RenewAll(t, d)
					livetest.CheckOnlyLost(t, m.losses, i)
					awaitWatchCount(t, server, manyHolds-1)
				} else {
					livetest.AwaitLoss(t, m.losses[i], livetest.Patience)
				}
			}
			livetest.CheckOnlyLost(t, m.losses, -1)
		})
	}
}

// TestWatchRefused has etcd refuse each watch. The driver asks again, but not all the time.
func TestWatchRefused(t *testing.T) {
	t.Parallel()
	refusals := make(chan time.Time, 1000)
	client := dialAs(t, "", "", []string{shared(t).Addr()},
		grpc.WithChainStreamInterceptor(alterAnswers("/etcdserverpb.Watch/Watch", func(m any) error {
			resp := m.(*etcdserverpb.WatchResponse)
			resp.Canceled, resp.WatchId = true, -1
			refusals <- time.Now()
			return nil
		})))
	acquire(t, open(t, client), request("refused", "a"))
	if first := <-refusals; (<-refusals).Sub(first) < time.Second {
		t.Error("the driver watches again within a second")
	}
}

// awaitWatchCount waits until the server has a number of watches.
func awaitWatchCount(t *testing.T, server *etcdtest.Server, want int) {
	t.Helper()
	livetest.Await(t, "watches in etcd", func() error {
		if got := watchCount(t, server); got != want {
			return fmt.Errorf("there are %d, want %d", got, want)
		}
		return nil
	})
}
