package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/metriclabel"
)

// A survey contains the counts of each class of names. It does not change once it is stored.
type survey map[string]*classCounts

// A classCounts counts the holds and waiters of one class of names in a store.
type classCounts struct {
	holds, endless, waiters int
	longest                 time.Duration // that one of the waiters has waited
}

// Survey lists the locks of a whole store, at once and then at the given interval, until ctx is
// done. It exports how many holds and waiters there are, for how long a waiter has waited at most,
// and how many holds will never end by themselves. It returns the cause of ctx's end. etcd and
// ZooKeeper list the locks of other programs, too.
//
// One surveying process per store is enough, and a minute is a good interval: listing does not
// block the store, but reads everything. Each of several stores of one kind needs its own
// Collector, because surveys differ in nothing but the backend. When a survey fails, Survey
// counts the failure and keeps exporting the result of the last successful one; the alert rules
// include one on its age. An interval that is not positive is a [snib.ErrInvalid].
func (c *Collector) Survey(ctx context.Context, d driver.Driver, every time.Duration) error {
	if every <= 0 {
		return fmt.Errorf("metrics: %w", driver.Invalidf("interval: %v is not positive", every))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		found := survey{}
		err := d.List(ctx, "", func(s driver.Status) bool {
			c.countLock(found, s)
			return true
		})
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

// countLock adds the holds and waiters of a lock to those of its class.
func (c *Collector) countLock(found survey, s driver.Status) {
	class := c.resources.Of(s.Name)
	if found[class] == nil && len(found) >= c.resources.Most() {
		class = metriclabel.Other
	}
	p := found[class]
	if p == nil {
		p = new(classCounts)
		found[class] = p
	}
	p.holds += len(s.Holders)
	p.waiters += len(s.Waiters)
	for _, w := range s.Waiters {
		p.longest = max(p.longest, w.Waited)
	}
	for _, h := range s.Holders {
		if h.Left == driver.NoExpiry {
			p.endless++
		}
	}
}

// recordSurvey stores the result of a survey, or counts its failure.
func (c *Collector) recordSurvey(backend string, found survey, err error) {
	backend = metriclabel.Clean(backend)
	failures := c.vectors.surveyFailures.WithLabelValues(backend) // exported as zero if there is none
	if err != nil {
		failures.Inc()
		return
	}
	c.vectors.surveyed.WithLabelValues(backend).SetToCurrentTime()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.surveys[backend] = found
}
