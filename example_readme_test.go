package snib_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// The README contains these examples line for line; internal/readme compares them.

type books struct{}

func (books) Close(_ context.Context, token uint64) error {
	fmt.Println("closed, fenced:", token > 0)
	return nil
}

type job struct{}

func (job) Run(ctx context.Context) { fmt.Println("job, while the lock is held:", ctx.Err() == nil) }

func Example_readmeDo() {
	ctx, ledger := context.Background(), books{}
	closeMonth := func() error {
		locker, err := snib.New(memlock.New()) // the driver decides who contends
		if err != nil {
			return err
		}
		return locker.Do(ctx, "invoices/2026-11", func(ctx context.Context, lock *snib.Lock) error {
			return ledger.Close(ctx, lock.Token()) // ctx ends if the lock is lost; the token fences late writes
		})
	}
	fmt.Println(closeMonth())
	// Output:
	// closed, fenced: true
	// <nil>
}

func Example_readmeLoss() {
	ctx, jobs := context.Background(), make(chan job, 1)
	jobs <- job{}
	lead := func(locker *snib.Locker) error {
		lock, err := locker.TryAcquire(ctx, "leader")
		switch {
		case errors.Is(err, snib.ErrHeld):
			return nil // another one is on it
		case err != nil:
			return err
		}
		defer lock.Release()
		for {
			select {
			case job := <-jobs:
				job.Run(lock.Context()) // ends with the hold
			case <-lock.Lost():
				return context.Cause(lock.Context()) // matches snib.ErrLost, and says why
			}
		}
	}
	locker, err := snib.New(memlock.New(), snib.MaxHold(500*time.Millisecond)) // loses it for the example
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("lost:", errors.Is(lead(locker), snib.ErrLost))
	// Output:
	// job, while the lock is held: true
	// lost: true
}
