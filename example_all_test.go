package snib_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Acquire two locks together. Two transfers in opposite directions don't deadlock, because both
// acquire the names in the same order.
func ExampleLocker_AcquireAll() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	accounts := map[string]int{"alice": 100, "bob": 100}
	transfer := func(from, to string, amount int) {
		locks, err := locker.AcquireAll(context.Background(), from, to)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer locks.Release()
		accounts[from] -= amount
		accounts[to] += amount
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { transfer("alice", "bob", 3) })
		wg.Go(func() { transfer("bob", "alice", 2) })
	}
	wg.Wait()
	fmt.Println(accounts)
	// Output: map[alice:50 bob:150]
}
