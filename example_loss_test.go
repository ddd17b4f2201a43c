package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

const exampleTTL = time.Second // short, to keep the example fast

// Stop working when the lock is lost. Here an operator breaks it; an unreachable store or a long
// pause ends the hold in the same way.
func ExampleLock_Context() {
	store := new(memlock.Store)
	locker, err := snib.New(store.Open(), snib.TTL(exampleTTL))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	lock, err := locker.Acquire(context.Background(), "reindex")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Open().Break(context.Background(), "reindex", lock.ID()); err != nil {
		fmt.Println(err)
		return
	}

	<-lock.Context().Done() // pass this context to all work under the lock
	fmt.Println("lost:", errors.Is(context.Cause(lock.Context()), snib.ErrLost))
	fmt.Println("release:", lock.Release())
	// Output:
	// lost: true
	// release: snib: release "reindex" (memory): the lock was lost
}
