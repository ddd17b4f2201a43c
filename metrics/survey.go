package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/label"
)

// A survey is what one store has, as a whole. What was found is not changed any more.
type survey struct {
	backend  string
	failures uint64

	at    time.Time // zero until one has succeeded
	found map[string]*population
}

// A population is what a store has of one class of names.
type population struct{ holds, endless, waiters int }

// Survey lists the locks of a whole store, now and then every so long, until ctx is done, and exports how many there are, and how
// many of them will never end by themselves. It returns the cause of ctx's end.
//
// One process for each store is enough for it, and a minute is a good interval: listing is made not to hold the store up, but
// reads everything. Of several stores of one kind, each needs a Collector of its own: what they have is told apart by nothing
// but the backend. A survey that fails is counted, and what the last one found stays; an alert on its age is among the rules.
// An interval that is not positive, or a driver that can't be inspected, is a [snib.ErrInvalid].
func (c *Collector) Survey(ctx context.Context, d driver.Driver, every time.Duration) error {
	inspector, ok := d.(driver.Inspector)
	switch {
	case !ok:
		return fmt.Errorf("metrics: %w driver: %T is no driver.Inspector", snib.ErrInvalid, d)
	case every <= 0:
		return fmt.Errorf("metrics: %w interval: %v is not positive", snib.ErrInvalid, every)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		found, err := c.look(ctx, inspector)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.note(d.Info().Backend, found, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look counts what the store has.
func (c *Collector) look(ctx context.Context, store driver.Inspector) (map[string]*population, error) {
	found := map[string]*population{}
	err := store.List(ctx, "", func(s driver.Status) bool {
		class := c.resources.Of(s.Name)
		if found[class] == nil && len(found) >= c.resources.Most() {
			class = Other
		}
		p := found[class]
		if p == nil {
			p = new(population)
			found[class] = p
		}
		p.holds += len(s.Holders)
		p.waiters += len(s.Waiters)
		for _, h := range s.Holders {
			if h.Endless {
				p.endless++
			}
		}
		return true
	})
	return found, err
}

// note keeps what a survey found, or that it failed.
func (c *Collector) note(backend string, found map[string]*population, err error) {
	backend = label.Clean(backend)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.surveys[backend]
	if s == nil {
		s = &survey{backend: backend}
		c.surveys[backend] = s
	}
	if err != nil {
		s.failures++
		return
	}
	s.at, s.found = time.Now(), found
}

func (c *Collector) collectSurvey(out writer, s *survey) {
	d := &c.descs
	out.counter(d.surveyFailures, s.failures, s.backend)
	if s.at.IsZero() {
		return
	}
	out.gauge(d.surveyed, float64(s.at.UnixMilli())/1000, s.backend)
	for class, p := range s.found {
		out.gauge(d.stored, float64(p.holds), s.backend, class)
		out.gauge(d.storeWaiting, float64(p.waiters), s.backend, class)
		out.gauge(d.endless, float64(p.endless), s.backend, class)
	}
}
