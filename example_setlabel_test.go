package snib_test

import (
	"context"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// A long job says how far it is, to all who look at its lock, for example with "snib show".
func ExampleLock_SetLabel() {
	locker, err := snib.New(new(memlock.Store).Open(), snib.Label("import"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "import/2026-11", func(ctx context.Context, lock *snib.Lock) error {
		for part := range 2 {
			// An error changes nothing for the job: a lost hold ends ctx.
			_ = lock.SetLabel(ctx, fmt.Sprintf("import: part %d of 2", part+1))
			status, err := locker.Status(ctx, "import/2026-11")
			if err != nil {
				return err
			}
			fmt.Println(status.Holders[0].Holder.Label)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// import: part 1 of 2
	// import: part 2 of 2
	// <nil>
}
