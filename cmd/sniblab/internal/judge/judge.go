// Package judge judges the recorded run of a lock target. [Judge] is a pure function of the
// events, which package history defines. It adds two resources: one that any holder writes, and one
// that checks tokens.
package judge

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/sniblock/snib/internal/history"
)

// Events of the resources. Read is the first thing that a holder does, and Write the last. The
// resource that checks tokens learns the token with the Read, and refuses smaller ones from then
// on.
const (
	Read  history.Kind = "read"
	Write history.Kind = "write"
)

// Rules are the rules by which a run is judged.
type Rules struct {
	Tokens bool          // the target gives tokens
	Bound  time.Duration // within which somebody gets the lock after the last fault

	// Unclaimed says that the resource that checks tokens learns a token when it is written with it,
	// and not yet when its holder reads.
	Unclaimed bool

	// Assumes has, for each fault that the target's stated assumptions exclude, the assumption.
	Assumes map[string]string

	// Restart says when the tokens of the target may begin anew.
	Restart Restart
}

// A Restart is a stated assumption about tokens: that a fault does not come after another one. If
// it does, tokens begin anew, and may be smaller than those before it.
type Restart struct {
	Fault, After string // no Fault: tokens never begin anew
	Assumption   string
}

// beginAnew returns the assumption that a fault breaks by which tokens may begin anew, or "". begun
// has the faults that have begun.
func (rules Rules) beginAnew(fault string, begun map[string]bool) string {
	if fault == rules.Restart.Fault && begun[rules.Restart.After] {
		return rules.Restart.Assumption
	}
	return rules.Assumes[fault]
}

// A Damage is a write that overwrote another one: its hold had read the resource before.
type Damage struct {
	At          int64
	Hold, Other *history.Hold // Other's write is lost
}

// A Disorder is a token that is not greater than that of an earlier hold, or the same one.
type Disorder struct{ Hold, Before *history.Hold }

// The Evidence of a run is what decided its verdict. A field is nil if nothing like it was found.
type Evidence struct {
	Worst    *history.Violation // the longest overlap, of those of which nobody was told if there are any
	Disorder *Disorder          // the first token that goes back
	First    *Damage            // the first on the resource that checks tokens, or else on the other one
}

// A Result is the judgement of one run, or of several, see [Result.Add].
type Result struct {
	Acquired int
	Faults   map[string]int

	Overlaps int           // pairs of holds that both believed in, at the same time
	ToldLate time.Duration // the longest overlap that ended because a holder was told of its loss
	Untold   time.Duration // the longest other overlap

	Damage int // writes that are lost on the resource that any holder writes
	Fenced int // the same on the one that checks tokens; 0 without tokens
	Tokens bool
	Back   int // tokens that are not greater than that of an earlier hold

	Blocked bool

	// Errors are the last texts of the target's errors, each once, the latest one last. Those of
	// the worst run count.
	Errors []string

	// Excused counts overlaps and damage after faults that a stated assumption excludes, and tokens
	// that go back which one excuses. Assumption is the first of these assumptions.
	Excused    int
	Assumption string

	Evidence
}

// Judge judges a run by its events.
func Judge(events []history.Event, rules Rules) Result {
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	report := history.Check(events, history.Rules{Bound: rules.Bound})
	r := Result{Acquired: report.Acquired, Faults: report.Faults, Tokens: rules.Tokens}
	delete(r.Faults, history.StopWorker) // how a fault is done is none of its own
	delete(r.Faults, history.KillWorker)
	excused := rules.excuses(events)
	for _, v := range report.Violations {
		switch v.Fact {
		case history.Exclusion:
			r.addOverlap(v, excused(v.Holds[0].Acquired, v.At))
		case history.Stuck:
			r.Blocked = true
		}
	}
	holds := make(map[[2]any]*history.Hold)
	for _, h := range history.Holds(events) {
		holds[[2]any{h.Worker, h.ID}] = h
	}
	if rules.Tokens {
		r.countBack(events, holds, rules)
	}
	r.countDamage(events, holds, excused, rules.Unclaimed)
	r.Errors = lastErrors(events)
	return r
}

// excuses returns a function that returns the assumption that a fault breaks which was active at
// some time between two moments, or "".
func (rules Rules) excuses(events []history.Event) func(from, until int64) string {
	var broken []history.Event
	ends := make(map[int64]int64) // of faults
	for _, e := range events {
		switch {
		case e.Kind == history.End:
			ends[e.ID] = e.At
		case e.Kind == history.Begin && rules.Assumes[e.Fault] != "":
			broken = append(broken, e)
		}
	}
	return func(from, until int64) string {
		for _, e := range broken {
			if end, ended := ends[e.ID]; e.At <= until && (!ended || end >= from) {
				return rules.Assumes[e.Fault]
			}
		}
		return ""
	}
}

// excuse counts something that an assumption excuses, and reports whether there is one.
func (r *Result) excuse(assumption string) bool {
	if assumption == "" {
		return false
	}
	r.Excused++
	r.Assumption = cmp.Or(r.Assumption, assumption)
	return true
}

// resolution is the shortest overlap that counts: clocks are read about as exactly.
const resolution = time.Millisecond

func (r *Result) addOverlap(v history.Violation, assumption string) {
	if v.Sum < resolution || r.excuse(assumption) {
		return
	}
	r.Overlaps++
	told := slices.ContainsFunc(v.Holds, func(h *history.Hold) bool { return h.Lost })
	switch {
	case !told && v.Sum > r.Untold:
		r.Untold, r.Worst = v.Sum, &v
	case told && v.Sum > r.ToldLate:
		r.ToldLate = v.Sum
		if r.Untold == 0 {
			r.Worst = &v
		}
	}
}

// countBack counts tokens that are not greater than that of a hold which was granted before the
// acquisition began. Of two acquisitions that ran at the same time, it can't tell which was granted
// first, because a grant may reach us late; but they may not have the same token. Tokens that begin
// anew are excused, and their order counts from then on.
func (r *Result) countBack(events []history.Event, holds map[[2]any]*history.Hold, rules Rules) {
	type tokens struct {
		all      uint64        // the greatest
		last     *history.Hold // with the greatest since they began anew, or nil
		restarts int
	}
	var now tokens
	atCall := make(map[[2]any]tokens)
	given := make(map[uint64]*history.Hold) // by the token, since tokens began anew
	begun := make(map[string]bool)          // faults
	active := make(map[int64]bool)          // faults by which tokens begin anew
	assumption := ""
	for _, e := range events {
		key := [2]any{e.Worker, e.ID}
		switch e.Kind {
		case history.Begin:
			begun[e.Fault] = true
			if broken := rules.beginAnew(e.Fault, begun); broken != "" {
				assumption = broken
				active[e.ID] = true
				now.last = nil
				now.restarts++
				clear(given)
			}
		case history.End:
			delete(active, e.ID)
		case history.Call:
			atCall[key] = now
		case history.Acquired:
			h, before := holds[key], atCall[key]
			inOne := before.restarts == now.restarts // or else the token may be from before a restart
			earlier := given[e.Token]
			if inOne && before.last != nil && e.Token <= before.last.Token {
				earlier = before.last
			}
			switch {
			case inOne && earlier != nil:
				r.Back++
				if r.Disorder == nil {
					r.Disorder = &Disorder{h, earlier}
				}
			case e.Token <= before.all:
				r.excuse(assumption)
			}
			now.all = max(now.all, e.Token)
			if !inOne || len(active) > 0 {
				continue
			}
			given[e.Token] = h
			if now.last == nil || e.Token > now.last.Token {
				now.last = h
			}
		}
	}
}

// A register is a resource of which each holder reads the state, and then writes the next one.
type register struct {
	writes int
	last   *history.Hold         // that wrote
	seen   map[*history.Hold]int // how many writes a hold had seen when it read
}

// write writes for a hold that has read, and returns the hold whose write is lost by that, or nil.
func (g *register) write(h *history.Hold) (overwritten *history.Hold) {
	if g.seen[h] != g.writes {
		overwritten = g.last
	}
	delete(g.seen, h)
	g.last = h
	g.writes++
	return overwritten
}

// countDamage does what the holders did to both resources.
func (r *Result) countDamage(events []history.Event, holds map[[2]any]*history.Hold,
	excused func(from, until int64) string, unclaimed bool) {
	plain, checked := register{seen: map[*history.Hold]int{}}, register{seen: map[*history.Hold]int{}}
	greatest := uint64(0)
	for _, e := range events {
		h := holds[[2]any{e.Worker, e.ID}]
		if h == nil {
			continue
		}
		switch e.Kind {
		case Read:
			plain.seen[h] = plain.writes
			if h.Token >= greatest {
				checked.seen[h] = checked.writes
				if !unclaimed {
					greatest = h.Token
				}
			}
		case Write:
			if other := plain.write(h); other != nil && !r.excuse(excused(min(h.Acquired, other.Acquired), e.At)) {
				r.Damage++
				if r.First == nil {
					r.First = &Damage{e.At, h, other}
				}
			}
			if _, claimed := checked.seen[h]; claimed && r.Tokens && h.Token >= greatest {
				greatest = h.Token
				if other := checked.write(h); other != nil && excused(min(h.Acquired, other.Acquired), e.At) == "" {
					if r.Fenced++; r.Fenced == 1 {
						r.First = &Damage{e.At, h, other}
					}
				}
			}
		}
	}
}

// The most errors that a result has, and the most characters of each.
const (
	mostErrors = 3
	maxLength  = 300
)

var numbers = regexp.MustCompile("[0-9]+")

// lastErrors returns the last texts of errors. Of texts that differ in numbers only, such as ports,
// it returns the latest.
func lastErrors(events []history.Event) (texts []string) {
	found := make(map[string]bool) // without numbers
	for _, e := range slices.Backward(events) {
		text := numbers.ReplaceAllString(e.Err, "0")
		if e.Kind != history.Failed || text == "" || found[text] {
			continue
		}
		found[text] = true
		texts = append(texts, fmt.Sprintf("%.*s", maxLength, e.Err))
		if len(texts) == mostErrors {
			break
		}
	}
	slices.Reverse(texts)
	return texts
}

// Add adds the result of another run of the same target, and reports whether that one is worse
// than all before.
func (r *Result) Add(o Result) (worse bool) {
	worse = severity(o.Verdict()) > severity(r.Verdict()) || o.Verdict() == r.Verdict() && o.size() > r.size()
	r.Tokens = o.Tokens && (r.Tokens || r.Acquired == 0)
	if r.Faults == nil {
		r.Faults = make(map[string]int)
	}
	r.Acquired += o.Acquired
	for _, name := range slices.Sorted(maps.Keys(o.Faults)) {
		r.Faults[name] += o.Faults[name]
	}
	r.Overlaps += o.Overlaps
	r.ToldLate, r.Untold = max(r.ToldLate, o.ToldLate), max(r.Untold, o.Untold)
	r.Damage, r.Fenced, r.Back = r.Damage+o.Damage, r.Fenced+o.Fenced, r.Back+o.Back
	r.Blocked = r.Blocked || o.Blocked
	r.Excused += o.Excused
	r.Assumption = cmp.Or(r.Assumption, o.Assumption)
	if worse {
		r.Evidence = o.Evidence
	}
	if worse || r.Errors == nil {
		r.Errors = o.Errors
	}
	return worse
}
