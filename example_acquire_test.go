package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Wait for a lock for a limited time, and do the work under it. The context of the lock ends if the
// lock is lost.
func ExampleLocker_Acquire() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	count := func(ctx context.Context) error {
		fmt.Println("counting")
		return ctx.Err()
	}

	countStock := func(ctx context.Context) error {
		lock, err := locker.With(snib.MaxWait(5*time.Second)).Acquire(ctx, "stock")
		switch {
		case errors.Is(err, snib.ErrHeld):
			return nil // somebody else held it for 5 s
		case err != nil:
			return err
		}
		defer lock.Release()
		return count(lock.Context()) // ends if the lock is lost
	}
	fmt.Println(countStock(context.Background()))
	// Output:
	// counting
	// <nil>
}
