package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Hold a lock for a fixed time, as tryLock(wait, lease, unit) of Redisson does. The hold ends by
// itself, even if the work hangs.
func ExampleNoRenewal() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	ctx := context.Background()

	tryLock := func(wait, lease time.Duration) (*snib.Lock, error) {
		return locker.With(snib.MaxWait(wait), snib.TTL(lease), snib.NoRenewal()).Acquire(ctx, "stock")
	}
	stuck, err := tryLock(5*time.Second, 50*time.Millisecond)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-stuck.Context().Done() // the work hangs
	fmt.Println(context.Cause(stuck.Context()))

	next, err := tryLock(5*time.Second, 10*time.Second)
	fmt.Println("the next holder:", err)
	fmt.Println("the first one releases too late:", errors.Is(stuck.Release(), snib.ErrLost))
	fmt.Println("the next one releases:", next.Release())
	// Output:
	// the lock was lost: its TTL of 50ms is over, and it is not renewed
	// the next holder: <nil>
	// the first one releases too late: true
	// the next one releases: <nil>
}
