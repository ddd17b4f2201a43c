package snib_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// Many readers or one writer. Readers and writers use the same name.
func ExampleShared() {
	writers, err := snib.New(memlock.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer writers.Close()
	readers := writers.With(snib.Shared())

	ctx := context.Background()
	one, err1 := readers.Acquire(ctx, "catalogue")
	two, err2 := readers.Acquire(ctx, "catalogue")
	fmt.Println("readers:", err1, err2)

	_, err = writers.TryAcquire(ctx, "catalogue")
	fmt.Println("writer beside readers:", errors.Is(err, snib.ErrHeld))

	fmt.Println(one.Release(), two.Release())
	writer, err := writers.TryAcquire(ctx, "catalogue")
	fmt.Println("writer alone:", err)
	fmt.Println(writer.Release())
	// Output:
	// readers: <nil> <nil>
	// writer beside readers: true
	// <nil> <nil>
	// writer alone: <nil>
	// <nil>
}
