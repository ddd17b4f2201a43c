package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/timeline"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Demo is the story of one failure, and of its cure.
type Demo struct {
	Name  string // as users type it
	Title string // in a few words
	Story string // what goes wrong, in a sentence or two

	Clients []string // their names; each has a lane

	Broken, Right Variant

	Advice string // what to use, in one sentence
	Page   string // that explains it, such as "docs/from-setnx.md#get-set"
}

// serverLane is the last lane.
const serverLane = "redis"

// Lanes returns the lanes of the timeline.
func (s Demo) Lanes() []string { return append(slices.Clone(s.Clients), serverLane) }

// A Variant is one half of a demo.
type Variant struct {
	Title string
	Right bool // not broken; Run sets it

	run  func(*Director)
	want Damage
}

// All returns all demos, in the order in which they teach.
func All() []Demo {
	return []Demo{
		setnxExpire(), getSet(), delAnothers(), getDel(), getsetTimestamp(), noRenewal(), pausedClient(),
	}
}

// Damage counts what went wrong in a variant.
type Damage struct {
	// Together is how often a client got the lock, or was resumed with it, while another one
	// believed to hold it. A client that is paused believes nothing.
	Together int

	Lost    int // sales that the stock does not show, because another one overwrote them
	Blocked int // jobs that were given up, because nobody ever frees the lock

	// Overwritten is how often a client that did not get the lock changed when it ends.
	Overwritten int
}

// String names what is not zero, or says that nothing was damaged.
func (d Damage) String() string {
	var all []string
	add := func(n int, one, more string) {
		switch {
		case n == 1:
			all = append(all, one)
		case n > 1:
			all = append(all, fmt.Sprintf(more, n))
		}
	}
	add(d.Together, "two held the lock at once", "%d times two held the lock at once")
	add(d.Lost, "1 sale is lost", "%d sales are lost")
	add(d.Blocked, "1 job is blocked for good", "%d jobs are blocked for good")
	add(d.Overwritten, "a loser changed the winner's expiry", "%d times a loser changed the winner's expiry")
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// A Result is the end of a variant. Its String describes the sales.
type Result struct {
	Damage Damage
	Stock  int // in the end
	Sold   int // jobs that were done: each took one from the stock
}

func (r Result) String() string {
	but := "and"
	if r.Damage.Lost != 0 {
		but = "but"
	}
	if r.Sold == 0 && r.Stock == OpeningStock {
		return "Nothing was sold."
	}
	return fmt.Sprintf("%d sold, %s the stock went from %d to %d.", r.Sold, but, OpeningStock, r.Stock)
}

// An Observer sees a demo while it is run. Its methods are not called at the same time.
type Observer interface {
	Begin(Variant)
	Starting(server string) // which may take seconds
	Event(timeline.Event)
	End(Variant, Result)
}

// OpeningStock is the stock at the begin of each variant.
const OpeningStock = 100

// Job describes the work of the clients of all demos.
const Job = "The job of each client: take one from a stock of 100. It reads the number, and writes it less one."

// ErrTooBusy is the error of a demo whose machine was so busy that a lease ended before its time
// in the story. It may go well the next time.
const ErrTooBusy driver.Sentinel = "the machine is too busy to run the demo; please try again"

// A MissingError reports that a demo needs a program that is not installed.
type MissingError = livetest.MissingError

// Run runs a demo. It returns an error if a variant did not end as it must, one that
// matches [ErrTooBusy], a [*MissingError] if a server is not installed, or the cause of ctx when
// that is done. When it returns, all
// processes have ended.
func Run(ctx context.Context, s Demo, a Observer) error {
	err := livetest.Outside(func(t testing.TB) error {
		r := &run{demo: s, t: t, observer: a}
		s.Right.Right = true
		for _, variant := range []Variant{s.Broken, s.Right} {
			if err := r.run(ctx, variant); err != nil {
				return fmt.Errorf("demo %s, %q: %w", s.Name, variant.Title, err)
			}
		}
		return nil
	})
	if missing, ok := errors.AsType[*MissingError](err); ok {
		return missing // without the place: nothing happened there
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // whatever the interrupted variant says
	}
	return err
}
