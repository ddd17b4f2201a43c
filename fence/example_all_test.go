package fence_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/memlock"
)

// Transfer money between two accounts under the locks of both. Each account lets in the later hold
// only, so a holder that was paused can't write late. The first account is written only while both
// are claimed.
func Example_twoLocks() {
	locker, err := snib.New(memlock.New()) // in production a store that all processes reach
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	var guard fence.Memory // stands for the database that has the accounts; see fence.SQL
	balance := map[string]int{"alice": 100, "bob": 100}
	transfer := func(ctx context.Context, from, to string, amount int) error {
		locks, err := locker.AcquireAll(ctx, from, to)
		if err != nil {
			return err
		}
		defer locks.Release()
		ctx = locks.Context() // ends when one of the locks is lost

		source, err := guard.Open(ctx, locks.Lock(from))
		if err != nil {
			return err
		}
		target, err := guard.Open(ctx, locks.Lock(to))
		if err != nil {
			return err
		}
		return source.Do(ctx, func(ctx context.Context) error {
			return target.Do(ctx, func(context.Context) error {
				balance[from] -= amount
				balance[to] += amount
				return nil
			})
		})
	}

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { report(transfer(context.Background(), "alice", "bob", 3)) })
		wg.Go(func() { report(transfer(context.Background(), "bob", "alice", 2)) })
	}
	wg.Wait()
	fmt.Println(balance)
	// Output: map[alice:80 bob:120]
}

// report prints an error.
func report(err error) {
	if err != nil {
		fmt.Println(err)
	}
}
