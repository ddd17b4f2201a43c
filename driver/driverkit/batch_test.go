package driverkit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver/driverkit"
)

// A batchLog runs batches, and records them. A batch that begins with an operation below zero hangs
// until the test ends it.
type batchLog struct {
	mu      sync.Mutex
	batches [][]int
	hung    chan struct{}
}

func (l *batchLog) run(ctx context.Context, batch []int) {
	l.mu.Lock()
	l.batches = append(l.batches, slices.Sorted(slices.Values(batch)))
	l.mu.Unlock()
	if batch[0] < 0 {
		select {
		case <-l.hung:
		case <-ctx.Done():
		}
	}
}

func (l *batchLog) sizes() (sizes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		sizes = append(sizes, len(b))
	}
	slices.Sort(sizes)
	return sizes
}

func TestBatcher(t *testing.T) {
	errLeft := errors.New("the caller has left")
	tests := []struct {
		name  string
		hang  int           // operations that hang
		end   time.Duration // when they end; 0 for not at all
		ops   int           // operations that come after them
		after time.Duration // when the first of these must have run
		leave bool          // their callers leave at once
		want  []int         // the sizes of all batches, sorted
	}{
		{name: "Alone", ops: 1, want: []int{1}},
		{name: "BesideOne", hang: 1, ops: 1, want: []int{1, 1}},
		{name: "Gathers", hang: 2, end: time.Millisecond, ops: 5, after: time.Millisecond, want: []int{1, 1, 5}},
		{name: "Bounded", hang: 2, end: time.Millisecond, ops: 100, after: time.Millisecond, want: []int{1, 1, 36, 64}},
		{name: "HeldUp", hang: 2, ops: 5, after: 10 * time.Millisecond, want: []int{1, 1, 5}},
		{name: "Left", hang: 2, end: time.Millisecond, ops: 5, leave: true, want: []int{1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &batchLog{hung: make(chan struct{})}
				b := driverkit.NewBatcher(l.run)
				var all sync.WaitGroup
				for i := range tt.hang {
					all.Go(func() { _ = b.Do(t.Context(), -1-i) })
				}
				synctest.Wait()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				began, failed := time.Now(), make(chan error, tt.ops)
				for i := range tt.ops {
					all.Go(func() {
						failed <- b.Do(ctx, i)
						if took := time.Since(began); took != tt.after {
							t.Errorf("operation %d took %v, want %v", i, took, tt.after)
						}
					})
				}
				synctest.Wait()
				var want error
				if tt.leave {
					cancel(errLeft)
					want = errLeft
				}
				if tt.end > 0 {
					time.Sleep(tt.end) // fake time
					close(l.hung)
				}
				for range tt.ops {
					if err := <-failed; !errors.Is(err, want) {
						t.Errorf("Do = %v, want %v", err, want)
					}
				}
				if tt.end == 0 {
					close(l.hung)
				}
				all.Wait()
				synctest.Wait()
				if got := l.sizes(); !slices.Equal(got, tt.want) {
					t.Errorf("batches of %v operations, want %v", got, tt.want)
				}
				// Whatever happened, nothing counts as in flight any more.
				if err := b.Do(t.Context(), 7); err != nil || len(l.sizes()) != len(tt.want)+1 {
					t.Errorf("Do afterwards = %v, after %d batches", err, len(l.sizes()))
				}
			})
		})
	}
}
