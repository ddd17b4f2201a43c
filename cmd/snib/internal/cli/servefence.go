package cli

import (
	"context"
	"errors"
	"time"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// A serviceGuard lets holds in to the resources of a service. It prints why it failed, because the
// clients are not told.
type serviceGuard struct {
	*backend.Guard // nil: the service has none
	app            *app
	printed        seldom
}

// openGuard opens the guard that the flags ask for. In Redis, marks would be gone with its memory,
// so a service of Redis has none unless --fence names a place for them.
func (c *serveCommand) openGuard(s *backend.Store) (*serviceGuard, error) {
	g := &serviceGuard{app: c.app}
	var err error
	if c.fence == "" {
		g.Guard, err = s.Guard()
		return g, err
	}
	url, err := c.storeURL(c.fence)
	if err != nil {
		return nil, err
	}
	g.Guard, err = backend.OpenGuard(context.Background(), url)
	return g, err
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

// fence returns the guard for the service.
func (g *serviceGuard) fence() fence.Guard {
	if g.Guard == nil {
		return nil
	}
	return g
}

// close closes the guard.
func (g *serviceGuard) close() {
	if g.Guard != nil {
		_ = g.Guard.Close() // nobody uses it any more
	}
}

// Do implements [fence.Guard].
func (g *serviceGuard) Do(ctx context.Context, m fence.Mark, fn func(context.Context) error) error {
	err := g.Guard.Do(ctx, m, fn)
	subject := "failure"
	switch {
	case err == nil, errors.Is(err, fence.ErrStale), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fence.ErrConflict):
		subject = "conflict" // worth an alarm, unless clients show a wrong id
	}
	if g.printed.allows(subject, time.Now()) {
		g.app.messagef("fence: %s: %s", g.URL, message(err))
	}
	return err
}
