package snib_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Call a function that acquires a lock that the caller already holds. The context
// carries the holds, so pass it on.
func ExampleReentrant() {
	locker, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	nested := func(locker *snib.Locker) error {
		return locker.Do(context.Background(), "stock", func(ctx context.Context, outer *snib.Lock) error {
			return locker.Do(ctx, "stock", func(_ context.Context, inner *snib.Lock) error {
				fmt.Println("same token:", inner.Token() == outer.Token())
				return nil
			})
		})
	}
	fmt.Println("would wait for itself:", errors.Is(nested(locker), snib.ErrNested))
	fmt.Println(nested(locker.With(snib.Reentrant())))
	// Output:
	// would wait for itself: true
	// same token: true
	// <nil>
}
