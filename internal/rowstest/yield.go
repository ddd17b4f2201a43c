package rowstest

import (
	"errors"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A YieldTest has what [YieldTest.Run] needs. The drivers keep no connection between two
// requests, as when the connections of a pool have ended.
type YieldTest struct {
	Holder, Waiter driver.Driver // the holder does not listen
	Listens        func() bool   // whether the waiter does

	Connections int                            // of others, so that the server has one left
	Connect     func() (end func(), err error) // opens one of these
}

// Run gives the last connection of a server to a waiter that listens. The holder needs it to
// release the lock.
func (f YieldTest) Run(t *testing.T) {
	held := livetest.Acquire(t, f.Holder, rowRequest("full", "holder"))
	waiter := livetest.Acquiring(t, f.Waiter, rowRequest("full", "waiter"))
	livetest.Await(t, "waiter that listens", func() error {
		if !f.Listens() {
			return errors.New("it does not listen")
		}
		return nil
	})
	var ends []func()
	livetest.Await(t, "server with one connection left", func() error {
		for len(ends) < f.Connections {
			end, err := f.Connect()
			if err != nil {
				return err
			}
			ends = append(ends, end)
		}
		return nil
	})
	livetest.Await(t, "release", func() error { return held.Release(t.Context()) })
	for _, end := range ends {
		end()
	}
	livetest.Release(t, waiter.Get(t))
}
