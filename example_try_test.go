package snib_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Skip work that somebody else is already doing.
func ExampleLocker_TryAcquire() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	report := func() string {
		lock, err := locker.TryAcquire(context.Background(), "nightly-report")
		switch {
		case errors.Is(err, snib.ErrHeld):
			return "another host is on it"
		case err != nil:
			return err.Error()
		}
		defer lock.Release()
		return "report written"
	}
	fmt.Println(report())

	busy, err := locker.Acquire(context.Background(), "nightly-report")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer busy.Release()
	fmt.Println(report())
	// Output:
	// report written
	// another host is on it
}
