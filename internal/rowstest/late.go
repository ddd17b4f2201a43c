package rowstest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A FullTest has what [LateOnFullServer] needs.
type FullTest struct {
	Proxy         *livetest.Proxy // leads to the server at Addr
	Addr          string
	Full          string // the address of another server, which has no connection left
	Driver, Other Driver // Driver uses Proxy

	LockRow func(name string) (unlock func()) // by a transaction
	Blocked func() int                        // how many statements wait for a row
}

// LateOnFullServer cuts the connection of a request that the server is executing. The server has
// no connection left for the retry, and completes the first request after the driver has removed
// what the request may have left. The driver must remove that once more.
//
// The retry goes to another server, which is full, because pgx also tries to cancel the request.
func LateOnFullServer(t *testing.T, c FullTest) {
	for round := 0; !c.lateOnFullServer(t, fmt.Sprint("late ", round)); round++ {
		t.Log("once more: the machine was too busy")
	}
}

// lateOnFullServer is one round. It returns false if the machine was so busy that the driver may
// have stopped to remove.
func (c FullTest) lateOnFullServer(t *testing.T, name string) bool {
	for _, d := range []Driver{c.Driver, c.Other} { // they connect, and create the row
		livetest.Release(t, livetest.Acquire(t, d, rowRequest(name, "first")))
	}
	unlock := c.LockRow(name)
	defer unlock()
	req := rowRequest(name, "late")
	req.NoWait = true
	w := livetest.Acquiring(t, c.Driver, req)
	if !c.becomesBlocked(t, w) {
		return false
	}
	removal := c.Proxy.Sent(name)
	c.Proxy.Redirect(c.Full)
	c.Proxy.Cut()
	err := w.End(t)
	began := time.Now()
	c.Proxy.Redirect(c.Addr)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrFull) {
		t.Fatalf("Acquire on a full server = %v, want ErrFull", err)
	}
	tooLate := func() bool { return time.Since(began) > driver.AnswerTimeout*3/4 }
	for range 2 { // when the second removal is sent, the first one was answered
		select {
		case <-removal:
		case <-time.After(livetest.Patience):
			t.Fatalf("no further removal within %v", livetest.Patience)
		}
		if tooLate() {
			return false
		}
		removal = c.Proxy.Sent(name)
	}
	unlock()
	c.awaitBlocked(t, 0)
	if tooLate() {
		return false
	}
	livetest.Await(t, "lock that is free", func() error {
		l, err := tryAcquire(t, c.Other, rowRequest(name, "next"))
		if err != nil {
			return err
		}
		return l.Release(t.Context())
	})
	return true
}

// becomesBlocked waits until the request waits for the row. It returns false if the request has
// ended before anybody saw that.
func (c FullTest) becomesBlocked(t *testing.T, w *livetest.Waiter) (ok bool) {
	t.Helper()
	livetest.Await(t, "request that waits for the row", func() error {
		select {
		case <-w.Done():
			return nil
		default:
		}
		if ok = c.Blocked() == 1; !ok {
			return errors.New("it does not")
		}
		return nil
	})
	return ok
}

func (c FullTest) awaitBlocked(t *testing.T, n int) {
	t.Helper()
	livetest.Await(t, "change of the queue for the row", func() error {
		if got := c.Blocked(); got != n {
			return fmt.Errorf("%d statements wait, want %d", got, n)
		}
		return nil
	})
}
