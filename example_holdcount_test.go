package snib_test

import (
	"context"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Ask whether the caller has the lock already, and how often. The context tells, so a function
// that needs the lock can check that it was called under it.
func ExampleLocker_HoldCount() {
	locker, err := snib.New(memlock.New(), snib.Reentrant())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	book := func(ctx context.Context) error {
		if locker.HoldCount(ctx, "stock") == 0 {
			return fmt.Errorf("book: call it under the lock stock")
		}
		return locker.Do(ctx, "stock", func(ctx context.Context, _ *snib.Lock) error {
			fmt.Println("inside:", locker.HoldCount(ctx, "stock"))
			return nil
		})
	}
	ctx := context.Background()
	fmt.Println(book(ctx))
	fmt.Println(locker.Do(ctx, "stock", func(ctx context.Context, _ *snib.Lock) error {
		return book(ctx)
	}))
	// Output:
	// book: call it under the lock stock
	// inside: 2
	// <nil>
}
