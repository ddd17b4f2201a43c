package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Wait for a lock for a limited time. MaxWait and a deadline of the
// context differ only in the error.
func ExampleMaxWait() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	held, err := locker.Acquire(context.Background(), "deploy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer held.Release()

	_, err = locker.With(snib.MaxWait(10*time.Millisecond)).Acquire(context.Background(), "deploy")
	fmt.Println(errors.Is(err, snib.ErrHeld), err)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = locker.Acquire(ctx, "deploy")
	fmt.Println(errors.Is(err, context.DeadlineExceeded), err)
	// Output:
	// true snib: acquire "deploy" (memory): the lock is held: waited for 10ms; this process holds it
	// true snib: acquire "deploy" (memory): context deadline exceeded; this process holds it
}
