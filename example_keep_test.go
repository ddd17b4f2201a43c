package snib_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Keep a lock's lease between holds, if this process uses the lock often and others rarely do.
func ExampleKeep() {
	requests := 0
	count := &snib.Trace{Acquired: func(e snib.AcquiredEvent) {
		if !e.Kept {
			requests++
		}
	}}
	locker, err := snib.New(memlock.New(), snib.Keep(time.Minute), snib.Tracing(count))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close() // which gives the lease back

	var last uint64
	for range 10 {
		err := locker.Do(context.Background(), "shard/7", func(_ context.Context, lock *snib.Lock) error {
			if lock.Token() <= last {
				return fmt.Errorf("token %d after %d", lock.Token(), last)
			}
			last = lock.Token()
			return nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("requests to the store:", requests)
	// Output: requests to the store: 1
}
