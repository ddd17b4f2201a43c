package pglock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestLateOnFullServer cuts the connection of a request that the server is executing. The server
// has no connection left for the retry, and completes the first request after the driver has
// removed what the request may have left. The driver must remove that once more.
//
// The retry goes to another server, which is full, because pgx also tries to cancel the request.
func TestLateOnFullServer(t *testing.T) {
	t.Parallel()
	server, full := pgtest.Start(t), pgtest.Start(t, "max_connections=5")
	openConns(t, dialWith(t, full.URL(), func(c *pgxpool.Config) { c.MaxConns = 5 }), 5)
	for round := 0; !lateOnFullServer(t, server.Addr(), full.Addr(), fmt.Sprint("late ", round)); round++ {
		t.Log("once more: the machine was too busy")
	}
}

// lateOnFullServer is one round. It returns false if the machine was so busy that the driver may
// have stopped to remove.
func lateOnFullServer(t *testing.T, server, full, name string) bool {
	admin, proxy := dial(t, pgtest.URL(server)), livetest.NewProxy(t, server)
	d, other := newDriver(t, dial(t, pgtest.URL(proxy.Addr()))), newDriver(t, dial(t, pgtest.URL(server)))
	for _, d := range []driver.Driver{d, other} { // they connect, and create the row
		release(t, acquire(t, d, request(name, "first")))
	}
	unlock := lockRow(t, admin, "snib_locks", name)
	defer unlock()
	w := livetest.Acquiring(t, d, noWait(name, "late"))
	ended := false // before anybody saw that it waits
	livetest.Await(t, "request that waits for the row", func() error {
		select {
		case <-w.Done():
			ended = true
			return nil
		default:
		}
		if blocked(t, admin) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if ended {
		return false
	}
	removal := proxy.Sent(name)
	proxy.Redirect(full)
	proxy.Cut()
	err := w.End(t)
	began := time.Now()
	tooLate := func() bool { return time.Since(began) > driver.AnswerTimeout*3/4 }
	proxy.Redirect(server)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrFull) {
		t.Fatalf("Acquire on a full server = %v, want ErrFull", err)
	}
	for range 2 { // when the second removal is sent, the first one was answered
		select {
		case <-removal:
		case <-time.After(livetest.Patience):
			t.Fatalf("no further removal within %v", livetest.Patience)
		}
		if tooLate() {
			return false
		}
		removal = proxy.Sent(name)
	}
	unlock()
	awaitBlocked(t, admin, 0)
	if tooLate() {
		return false
	}
	awaitFree(t, other, name)
	return true
}
