package fence

import (
	"context"
	"sync"
)

// Memory guards what lives in this process, and goes with it. The zero value is ready to use. It is safe for concurrent use.
//
// It remembers each lock's name for as long as it lives, in some hundred bytes: names that strangers may make up fill the memory.
type Memory struct {
	mu    sync.Mutex
	seats map[string]*seat
}

// A seat is where the holds of one lock come in, one at a time.
type seat struct {
	free chan struct{} // of one; has a value while nobody is in
	last Mark          // belongs to whoever is in
}

// Open claims what lives in this process; see [Open].
func (g *Memory) Open(ctx context.Context, h Hold) (*Handle, error) { return Open(ctx, g, h) }

// Do implements [Guard].
func (g *Memory) Do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	if err := m.Check(); err != nil {
		return err
	}
	s := g.seat(m.Lock)
	select {
	case <-s.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.free <- struct{}{} }()
	if err := m.After(s.last); err != nil {
		return err
	}
	s.last = m
	if fn == nil {
		return nil
	}
	return fn(ctx)
}

func (g *Memory) seat(lock string) *seat {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.seats[lock]
	if s == nil {
		if g.seats == nil {
			g.seats = make(map[string]*seat)
		}
		s = &seat{free: make(chan struct{}, 1)}
		s.free <- struct{}{}
		g.seats[lock] = s
	}
	return s
}
