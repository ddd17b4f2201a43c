package driverkit

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch bounds the operations of a batch: all of them wait for its last one.
	maxBatch = 64

	// maxInFlight is how many batches may be in flight while operations gather for the next one.
	maxInFlight = 2

	// longestGather is how long an operation waits for the batches in flight. One of them may be held
	// up, by the lock of a row or by a dead connection.
	longestGather = 10 * time.Millisecond
)

// A Batcher runs the operations of concurrent callers together. While fewer than two batches are in
// flight, an operation runs at once, on the goroutine of its caller. Otherwise operations gather,
// and run together when a batch is done: the more there are, the less each costs. After 10 ms they
// no longer wait for that. An operation can't overtake one that its caller has waited for. A
// Batcher is safe for concurrent use.
type Batcher[T any] struct {
	run func(ctx context.Context, batch []T)

	mu         sync.Mutex
	generation int // of the batches that are counted as in flight
	inFlight   int
	waiting    []*gathered[T]
}

// A gathered operation waits for the next batch.
type gathered[T any] struct {
	op   T
	done chan struct{}
}

// NewBatcher returns a Batcher. run runs the operations of a batch, 1 to 64, and stores the result
// of each where its caller finds it. It returns soon after ctx is done.
func NewBatcher[T any](run func(ctx context.Context, batch []T)) *Batcher[T] {
	return &Batcher[T]{run: run}
}

// Do runs an operation, and returns nil when it has run. If ctx is done before, Do may return the
// cause of ctx. Then the operation may still run, and the caller must not touch it any more.
func (b *Batcher[T]) Do(ctx context.Context, op T) error {
	b.mu.Lock()
	if b.inFlight < maxInFlight && len(b.waiting) == 0 {
		b.inFlight++
		generation := b.generation
		b.mu.Unlock()
		b.run(ctx, []T{op})
		if next := b.next(generation); next != nil {
			go b.runAll(generation, next)
		}
		return nil
	}
	g := &gathered[T]{op: op, done: make(chan struct{})}
	b.waiting = append(b.waiting, g)
	b.mu.Unlock()
	heldUp := time.NewTimer(longestGather)
	defer heldUp.Stop()
	for {
		select {
		case <-g.done:
			return nil
		case <-heldUp.C:
			b.overtake(g)
		case <-ctx.Done():
			b.forget(g)
			return context.Cause(ctx)
		}
	}
}

// overtake runs the waiting operations at once, unless g is no longer among them. The batches in
// flight are not counted any more.
func (b *Batcher[T]) overtake(g *gathered[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.waiting, g) {
		b.generation++
		b.inFlight = 1
		go b.runAll(b.generation, b.takeLocked())
	}
}

// forget removes an operation that still waits.
func (b *Batcher[T]) forget(g *gathered[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, g); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
}

// runAll runs a batch, and then the operations that have gathered meanwhile.
func (b *Batcher[T]) runAll(generation int, batch []*gathered[T]) {
	for ; batch != nil; batch = b.next(generation) {
		ops := make([]T, len(batch))
		for i, g := range batch {
			ops[i] = g.op
		}
		ctx, cancel := Detached(context.Background())
		b.run(ctx, ops)
		cancel()
		for _, g := range batch {
			close(g.done)
		}
	}
}

// next returns the next batch for a goroutine that has run one. If no operation waits, or if the
// batch was overtaken, it returns nil.
func (b *Batcher[T]) next(generation int) []*gathered[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case generation != b.generation:
		return nil
	case len(b.waiting) == 0:
		b.inFlight--
		return nil
	}
	return b.takeLocked()
}

// takeLocked takes a batch from the waiting operations. The caller must hold b.mu.
func (b *Batcher[T]) takeLocked() []*gathered[T] {
	n := min(len(b.waiting), maxBatch)
	batch := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return batch
}
