// Package trial runs lock targets under faults, and has each run judged. A target is a
// program that speaks the protocol of package target; docs/lab.md describes both. "sniblab run"
// runs it.
//
// A target is run in trials of a few seconds. In each trial, three clients compete for one lock
// of an empty store, while a director does a few faults, which it chooses by the seed of the
// trial. At the end it does no more faults, and waits until somebody gets the lock. The events of a
// trial are judged by package judge, and the worst trial decides.
package trial

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// TTL is the TTL of locks in the lab. A lock that takes whole seconds can have it, too.
const TTL = time.Second

// bound is how long the lab waits after the last fault for somebody to get the lock.
const bound = TTL + 5*time.Second

// A Target is a way to lock that the lab judges.
type Target struct {
	Name  string
	Title string // in a few words
	Store StoreKind

	Command []string // the program and its arguments

	// Together says that one process serves all three clients. The process is not killed then.
	Together bool

	// LibcClock says that the program asks libc for the time, so that the lab can set its clock.
	LibcClock bool

	// OneWay says that all clients must reach the servers at the same addresses. None of them
	// can be cut off alone then.
	OneWay bool

	// Prepare is called with the URL of the store before each trial, if it is not nil.
	Prepare func(ctx context.Context, url string) error

	// Settle is for how long nobody gets the lock after a fault, as the target's docs say.
	Settle time.Duration

	// Unclaimed says that the resource that checks tokens learns them from writes only.
	Unclaimed bool

	Tokens  bool              // it must give fencing tokens; if not, it has them if each grant has one
	Assumes map[string]string // stated assumptions, by the fault that breaks them
	Restart judge.Restart     // when its tokens may begin anew

	// Defect says what is wrong, for a broken pattern: a control, which must get the verdict Want
	// under its own schedule.
	Defect string
	Page   string // that explains it
	Source string // the address of who describes it, or warns of it
	Want   judge.Verdict

	Faults []string      // the schedule: nil for all faults that fit the store
	Work   time.Duration // how long each hold lasts; 0 for a few milliseconds up to 0.3 s
}

// IsControl reports whether the target is broken on purpose.
func (c Target) IsControl() bool { return c.Defect != "" }

// OwnCommand returns the command line of a process of this program that is the target with a name.
func OwnCommand(name string) []string {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return []string{exe, "target", name}
}

// Options say what to run.
type Options struct {
	Targets []Target
	Faults  []string      // nil for all
	For     time.Duration // how long each target is run, about; a control ends when it is rejected
	Seed    uint64
}

// An Outcome is what became of a target.
type Outcome struct {
	Target Target
	judge.Result
	Seed   uint64 // of the decisive trial; if Err is set, of the trial that failed
	Trials int
	Took   time.Duration
	Err    error // why it could not be judged
	Late   error // why it was run no further when it was rejected already
}

// Rejected reports whether the target was judged and its verdict is against it.
func (o Outcome) Rejected() bool { return o.Err == nil && o.Verdict().Explain().Rejected }

// AsExpected reports whether a control got its verdict.
func (o Outcome) AsExpected() bool { return o.Err == nil && o.Verdict() == o.Target.Want }

// LastErrors returns the errors that may tell why nobody got the lock, the latest one last, or none
// if clients got it until the end.
func (o Outcome) LastErrors() []string {
	if o.Blocked || o.Acquired == 0 {
		return o.Errors
	}
	return nil
}

// controlTime is how long a control is run before it counts as not rejected.
const controlTime = time.Minute

// width is how many targets are run at a time. They wait more than they compute.
const width = 4

// Run runs all targets, and returns an outcome for each, in their order. It returns an error
// only if ctx ends. Then there are no outcomes. It calls done with each outcome, one after the
// other. When Run returns, all processes have ended.
func Run(ctx context.Context, opts Options, done func(Outcome)) ([]Outcome, error) {
	outcomes := make([]Outcome, len(opts.Targets))
	var mu sync.Mutex // serializes done
	slots := make(chan struct{}, width)
	var all sync.WaitGroup
	for i, c := range opts.Targets {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			o := run(ctx, c, opts)
			if ctx.Err() != nil {
				return
			}
			outcomes[i] = o
			mu.Lock()
			defer mu.Unlock()
			done(o)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return outcomes, nil
}

// run runs one target, trial after trial. If ctx ends before that, the outcome says nothing.
func run(ctx context.Context, c Target, opts Options) (o Outcome) {
	o.Target, o.Seed = c, opts.Seed
	began := time.Now()
	long := opts.For
	if c.IsControl() {
		long = controlTime
	}
	lastSeed := opts.Seed // of the latest trial
	err := livetest.Outside(func(t testing.TB) error {
		faults, err := FaultsFor(c, opts.Faults)
		if err != nil {
			return err
		}
		s := openStore(t, c)
		for seed := opts.Seed; o.Trials == 0 || time.Since(began) < long; seed++ {
			lastSeed = seed
			b := &trial{t: t, c: c, store: s, schedule: newSchedule(c, faults, seed), seed: seed}
			events, err := b.run(ctx)
			if ctx.Err() != nil { // the end of a trial that was cut short looks like a lock that is blocked
				return context.Cause(ctx)
			}
			if err != nil {
				return err
			}
			o.Trials++
			if worse := o.Add(judge.Judge(events, judge.Rules{Tokens: haveTokens(events), Bound: b.waited, Assumes: c.Assumes,
				Restart: c.Restart, Unclaimed: c.Unclaimed})); worse || o.Trials == 1 {
				o.Seed = seed
			}
			if c.IsControl() && o.AsExpected() {
				break
			}
		}
		if o.Acquired == 0 && !o.Blocked {
			text := "it never got the lock"
			if n := len(o.Errors); n > 0 {
				text += "; its last error: " + o.Errors[n-1]
			}
			return errors.New(text)
		}
		return nil
	})
	o.Took = time.Since(began)
	switch {
	case err != nil && o.Rejected(): // a later failure does not change the verdict
		o.Late = err
	case err != nil:
		o.Err, o.Seed = err, lastSeed
	}
	return o
}

// haveTokens reports whether each grant has a token.
func haveTokens(events []history.Event) bool {
	return !slices.ContainsFunc(events, func(e history.Event) bool { return e.Kind == history.Acquired && e.Token == 0 })
}
