package cron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/memlock"
)

// Two hosts have the same schedule. One of them runs the tick.
func Example() {
	var store memlock.Store // in production a store that all hosts reach
	for _, host := range []string{"first", "second"} {
		locker, err := snib.New(store.Open())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer locker.Close()
		runner, err := cron.New(locker, 30*time.Second) // for a schedule of a minute
		if err != nil {
			fmt.Println(err)
			return
		}
		ran, err := runner.Run(context.Background(), "report", func(context.Context, *snib.Lock) error {
			fmt.Println("the", host, "host writes the report")
			return nil
		})
		fmt.Println(ran, err)
	}
	// Output:
	// the first host writes the report
	// true <nil>
	// false <nil>
}
