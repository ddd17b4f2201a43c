package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// docs/from-setnx.md contains lines of this example; internal/readme compares them.

type orders struct{}

func (orders) Process(_ context.Context, id int, token uint64) error {
	fmt.Printf("order %d, fenced: %v\n", id, token > 0)
	return nil
}

// Process an order under its lock, or give up after three seconds.
func Example_processOrder() {
	ctx, shop := context.Background(), orders{}
	d := memlock.New() // or redislock.New(ctx, client), and so on
	process := func() error {
		locker, err := snib.New(d, snib.Prefix("lock:"), snib.TTL(15*time.Second), snib.MaxWait(3*time.Second))
		if err != nil {
			return err
		}
		err = locker.Do(ctx, "order:1001", func(ctx context.Context, lock *snib.Lock) error {
			return shop.Process(ctx, 1001, lock.Token()) // ctx ends if the lock is lost
		})
		if errors.Is(err, snib.ErrHeld) {
			return fmt.Errorf("somebody else is working on the order: %w", err)
		}
		return err
	}
	fmt.Println(process())
	// Output:
	// order 1001, fenced: true
	// <nil>
}
