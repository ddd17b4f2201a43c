package snib_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// At most three at a time, over all processes: a semaphore.
func ExampleSlots() {
	licences, err := snib.New(memlock.New(), snib.Slots(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer licences.Close()

	var running, most, ran atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := licences.Do(context.Background(), "licence", func(context.Context, *snib.Lock) error {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer running.Add(-1)
				ran.Add(1)
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println("ran:", ran.Load(), "never more than three:", most.Load() <= 3)
	// Output: ran: 20 never more than three: true
}
