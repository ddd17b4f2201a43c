package leader_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/leader"
	"github.com/sniblock/snib/memlock"
)

// One of many processes does the work that only one may do. Here the work ends after the first
// term, with an error that says so.
func ExampleRun() {
	locker, err := snib.New(memlock.New()) // in production a store that all candidates reach
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	errDone := errors.New("there is nothing left to do")
	err = leader.Run(context.Background(), locker, "reconciler", func(ctx context.Context, lock *snib.Lock) error {
		fmt.Println("leading, fenced:", lock.Token() > 0)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errDone
	})
	fmt.Println(err)
	// Output:
	// leading, fenced: true
	// there is nothing left to do
}
