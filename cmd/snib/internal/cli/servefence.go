package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// A serviceGuard lets holds in to the resources of a service. It prints why it failed, because the
// clients are not told.
type serviceGuard struct {
	*backend.Guard
	app *app

	mu      sync.Mutex
	printed map[string]time.Time // when each problem was printed last
}

// Do implements [fence.Guard].
func (g *serviceGuard) Do(ctx context.Context, m fence.Mark, fn func(context.Context) error) error {
	err := g.Guard.Do(ctx, m, fn)
	switch {
	case err == nil, errors.Is(err, fence.ErrStale), errors.Is(err, context.Canceled):
	case errors.Is(err, fence.ErrConflict):
		g.print("conflict", err) // worth an alarm, unless clients show a wrong id
	default:
		g.print("failure", err)
	}
	return err
}

// print prints a problem at most once a minute.
func (g *serviceGuard) print(problem string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, ok := g.printed[problem]; !ok || time.Since(last) >= time.Minute {
		g.printed[problem] = time.Now()
		g.app.messagef("fence: %s", message(err))
	}
}

// identity returns the identity of a store; "" if it keeps none.
func (c *serveCommand) identity(ctx context.Context, s *backend.Store) (string, error) {
	id, err := s.Identity(ctx)
	if err == nil || errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
		return id, err
	}
	c.messagef("the store has no id that clients could compare: %s", message(err))
	return "", nil
}
