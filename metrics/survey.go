package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metriclabel"
)

// A survey is the latest survey of one store. The map found is not changed once it is stored.
type survey struct {
	backend  string
	failures uint64

	at    time.Time // zero until one has succeeded
	found map[string]*classCounts
}

// A classCounts counts the holds and waiters of one class of names in a store.
type classCounts struct{ holds, endless, waiters int }

// Survey lists the locks of a whole store, at once and then at the given interval, until ctx is
// done. It exports how many holds and waiters there are, and how many holds will never end by
// themselves. It returns the cause of ctx's end.
//
// One surveying process per store is enough, and a minute is a good interval: listing does not
// block the store, but reads everything. Each of several stores of one kind needs its own
// Collector, because surveys differ in nothing but the backend. When a survey fails, Survey
// counts the failure and keeps exporting the result of the last successful one; the alert rules
// include one on its age. An interval that is not positive, or a driver that is not a
// [driver.Inspector], is a [snib.ErrInvalid].
func (c *Collector) Survey(ctx context.Context, d driver.Driver, every time.Duration) error {
	inspector, ok := d.(driver.Inspector)
	switch {
	case !ok:
		return fmt.Errorf("metrics: %w", driver.Invalidf("driver: %T does not implement driver.Inspector", d))
	case every <= 0:
		return fmt.Errorf("metrics: %w", driver.Invalidf("interval: %v is not positive", every))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		found, err := c.countLocks(ctx, inspector)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.recordSurvey(d.Info().Backend, found, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// countLocks counts the holds and waiters in the store by class.
func (c *Collector) countLocks(ctx context.Context, store driver.Inspector) (map[string]*classCounts, error) {
	found := map[string]*classCounts{}
	err := store.List(ctx, "", func(s driver.Status) bool {
		class := c.resources.Of(s.Name)
		if found[class] == nil && len(found) >= c.resources.Most() {
			class = Other
		}
		p := found[class]
		if p == nil {
			p = new(classCounts)
			found[class] = p
		}
		p.holds += len(s.Holders)
		p.waiters += len(s.Waiters)
		for _, h := range s.Holders {
			if h.Left == driver.NoExpiry {
				p.endless++
			}
		}
		return true
	})
	return found, err
}

// recordSurvey stores the result of a survey, or counts its failure.
func (c *Collector) recordSurvey(backend string, found map[string]*classCounts, err error) {
	backend = metriclabel.Clean(backend)
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
