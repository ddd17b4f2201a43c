package main

import (
	"cmp"
	"fmt"
	"time"
)

// A plan says how long a program runs.
type plan struct {
	runs, done int
	left       time.Duration // of the runs that are not done
}

// planFor returns the plan for scenarios.
func (h *harness) planFor(all []scenario) (p plan) {
	for _, s := range all {
		for _, v := range s.variants {
			for _, v.delay = range h.delays {
				n := h.reps * len(s.peersOf(&v))
				p.runs += n
				p.left += time.Duration(n) * h.timeOf(&v)
			}
		}
	}
	return p
}

// timeOf returns about how long a run of a variant takes.
func (h *harness) timeOf(v *variant) time.Duration {
	d := h.warmup + cmp.Or(h.window, v.window) + 300*time.Millisecond // to start and end processes
	if v.fresh {
		d += 700 * time.Millisecond // to start servers
	}
	return d + v.load.TTL/2 // to acquire locks that are held, and to renew them once
}

// next counts a run that takes d, and says how many are done and how long the others take.
func (p *plan) next(d time.Duration) string {
	p.done++
	p.left -= d
	return fmt.Sprintf("[%d of %d, %v left]", p.done, p.runs, p.left.Round(time.Second))
}

func (p plan) String() string {
	return fmt.Sprintf("%d runs take about %v", p.runs, p.left.Round(time.Minute))
}
