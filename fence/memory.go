package fence

import (
	"context"
	"sync"
)

// Memory guards a resource in this process; its marks are lost with the process. The zero value
// is ready to use. It is safe for concurrent use.
//
// Memory remembers each lock's name for as long as it lives, in some hundred bytes: if
// strangers may make up names, they can fill the memory.
type Memory struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// An entry lets in the holds of one lock, one at a time.
type entry struct {
	free chan struct{} // capacity 1; has a value while no hold is in
	last Mark          // belongs to the hold that is in
}

// Open claims the resource; see [Open].
func (g *Memory) Open(ctx context.Context, h Hold) (*Handle, error) { return Open(ctx, g, h) }

// Do implements [Guard].
func (g *Memory) Do(ctx context.Context, m Mark, fn func(context.Context) error) error {
	if err := m.Check(); err != nil {
		return err
	}
	s := g.entry(m.Lock)
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

func (g *Memory) entry(lock string) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.entries[lock]
	if s == nil {
		if g.entries == nil {
			g.entries = make(map[string]*entry)
		}
		s = &entry{free: make(chan struct{}, 1)}
		s.free <- struct{}{}
		g.entries[lock] = s
	}
	return s
}
