package snib_test

import (
	"context"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Run a function under a lock. Its context ends if the lock is lost; its token fences late writes.
func ExampleLocker_Do() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	balance := 100
	err = locker.Do(context.Background(), "account/7", func(ctx context.Context, lock *snib.Lock) error {
		balance -= 30
		return ctx.Err()
	})
	fmt.Println(balance, err)
	// Output: 70 <nil>
}
