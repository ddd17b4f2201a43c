package history

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"
)

// A Fact is a kind of violation.
type Fact string

// The facts that a history can violate.
const (
	Exclusion Fact = "exclusion" // a lock has too many holders, each within its validity
	// A lock has a new holder, and the former one was not told although its validity is over.
	Untold Fact = "untold"
	// A lease was broken, and its holder was not told within [Rules.Hint].
	Unhinted Fact = "unhinted"
	Order    Fact = "order" // the token of a hold is not greater than that of an earlier hold
	Early    Fact = "early" // MinHold or LockDelay was not kept
	Twice    Fact = "twice" // a tick of a schedule was run twice
	Idle     Fact = "idle"  // nobody got a lock that was free, or whose holder was gone
	Stuck    Fact = "stuck" // a worker did not get a lock after the heal
	Leftover Fact = "left"  // the store shows a holder or a waiter that no longer exists
)

// An Allowance is a stated assumption of a set-up: it says what may go wrong there
// under a fault.
type Allowance struct {
	Fault string
	Facts []Fact
	Names []string // of locks; nil for all
	// Undisturbed time after the end of the fault; what lasts longer is a violation.
	For time.Duration
	Why string
}

// Rules are the rules by which a run is judged.
type Rules struct {
	Bound time.Duration // within which all workers get all locks after the heal
	// Undisturbed time within which a holder is told that its lease was broken; 0 for no limit.
	Hint time.Duration
	// Undisturbed time between the end of a hold and the next one; 0 for no limit. It is of use where
	// workers ask for each lock all the time.
	Idle time.Duration
	// A fault after which the store counts tokens anew, or "". For Lease after it, a process may
	// still hand over an older token.
	Forgets string
	Lease   time.Duration
	Allowed []Allowance
}

// A Violation is a breach of a guarantee.
type Violation struct {
	Fact      Fact
	Name      string // of the lock
	At, Until int64
	Text      string
	Allowed   string // the assumption that allows it, or ""

	Holds []*Hold       // an exclusion or a disorder: the two holds, the earlier one first
	Sum   time.Duration // an exclusion: for how long both believed, without pauses
}

func (v Violation) String() string {
	return fmt.Sprintf("%s at %.4f for %v: %s", v.Fact, seconds(v.At), time.Duration(v.Until-v.At), v.Text)
}

// A Report is the result of [Check].
type Report struct {
	Acquired, Lost, Killed int
	Faults                 map[string]int
	// Counts of unexpected errors, by their text without numbers.
	Odd        map[string]int
	Violations []Violation
}

// untoldTolerance is how late a running holder may notice that its hold has ended.
const untoldTolerance = 300 * time.Millisecond

// Check judges a run by the events in its logs.
func Check(events []Event, rules Rules) Report {
	s := buildTimeline(events)
	r := Report{Acquired: len(s.holds), Faults: map[string]int{}, Odd: map[string]int{}}
	number := regexp.MustCompile("[0-9]+")
	for _, f := range s.faults {
		r.Faults[f.name]++
		if f.name == KillWorker {
			r.Killed++
		}
	}
	for _, e := range events {
		if e.Kind == Told {
			r.Lost++
		}
		if e.Odd {
			r.Odd[string(e.Kind)+": "+number.ReplaceAllString(e.Err, "N")]++
		}
	}
	byName := map[string][]*Hold{}
	for _, h := range s.holds {
		byName[h.Name] = append(byName[h.Name], h)
	}
	for _, holds := range byName {
		r.Violations = slices.Concat(r.Violations, findOverlaps(holds), findSlotOverflows(holds), findEarly(holds, s),
			findUnhinted(holds, s, rules.Hint), findTwice(holds), findIdle(holds, s, rules.Idle))
		for _, epoch := range s.epochs(holds, rules) {
			r.Violations = append(r.Violations, findDisorder(epoch)...)
		}
	}
	r.Violations = append(r.Violations, s.findStuck(rules.Bound)...)
	for _, e := range s.left {
		r.Violations = append(r.Violations, Violation{Fact: Leftover, Name: e.Name, At: e.At, Until: e.At,
			Text: e.Name + ": " + e.Err})
	}
	for i := range r.Violations {
		r.Violations[i].Allowed = s.allowedBy(r.Violations[i], rules.Allowed)
	}
	slices.SortFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return r
}

// allowedBy returns the assumption that covers a violation, or "".
func (s *timeline) allowedBy(v Violation, allowed []Allowance) string {
	for _, a := range allowed {
		if !slices.Contains(a.Facts, v.Fact) || a.Names != nil && !slices.Contains(a.Names, v.Name) {
			continue
		}
		for _, f := range s.faults {
			if f.name == a.Fault && (f.lock == "" || f.lock == v.Name) && f.during.from <= v.At &&
				s.undisturbed(f.during.until, v.Until) <= a.For {
				return a.Fault + ": " + a.Why
			}
		}
	}
	return ""
}

// disturbances returns when a fault of the store or the network was active. Holders may then
// be unable to hear of anything.
func (s *timeline) disturbances() []span {
	var disturbed []span
	for _, f := range s.faults {
		if f.lock == "" && f.worker == "" {
			disturbed = append(disturbed, f.during)
		}
	}
	return disturbed
}

// undisturbed returns the length of the time between two moments without disturbances.
func (s *timeline) undisturbed(from, until int64) time.Duration {
	return length(span{from, until}.without(merge(s.disturbances())))
}

func violation(fact Fact, h *Hold, during span, format string, args ...any) Violation {
	return Violation{Fact: fact, Name: h.Name, At: during.from, Until: during.until, Text: fmt.Sprintf(format, args...)}
}

// findOverlaps finds pairs of conflicting holds whose holders believed in them at the
// same time. All holds have the same name.
func findOverlaps(holds []*Hold) []Violation {
	var found []Violation
	var open []*Hold
	for _, h := range holds {
		open = slices.DeleteFunc(open, func(o *Hold) bool { return o.End <= h.Acquired })
		for _, o := range open {
			if !h.conflicts(o) {
				continue
			}
			during, believed := overlap(o, h, min(o.End, o.Sure), min(h.End, h.Sure))
			if believed > 0 {
				v := violation(Exclusion, h, during, "%v and %v", o, h)
				v.Holds, v.Sum = []*Hold{o, h}, believed
				found = append(found, v)
			}
			if during, sum := overlap(o, h, o.End, h.End); sum-believed > untoldTolerance {
				found = append(found, violation(Untold, h, during, "%v and %v", o, h))
			}
		}
		open = append(open, h)
	}
	return found
}

// findSlotOverflows finds times at which a semaphore has more holders than one of them asked for.
func findSlotOverflows(holds []*Hold) []Violation {
	var found []Violation
	for _, h := range holds {
		if h.Slots == 0 {
			continue
		}
		n, least, until := 0, h.Slots, int64(math.MaxInt64)
		for _, o := range holds {
			believes := span{o.Acquired, min(o.End, o.Sure)}
			if believes.from > h.Acquired || believes.until <= h.Acquired {
				continue
			}
			if pieces := (span{h.Acquired, believes.until}).without(o.pauses); len(pieces) > 0 && pieces[0].from == h.Acquired {
				n, least = n+1, min(least, o.Slots)
				until = min(until, pieces[0].until)
			}
		}
		if n > least {
			found = append(found, violation(Exclusion, h, span{h.Acquired, until}, "%d hold %d slots; the last is %v", n, least, h))
		}
	}
	return found
}

// epochs groups the holds between which tokens are in order: those between two faults that forget
// them. A hold whose token may be of either time is in no group.
func (s *timeline) epochs(holds []*Hold, rules Rules) map[int][]*Hold {
	all := make(map[int][]*Hold)
	for _, h := range holds {
		over, begun := 0, 0
		for _, f := range s.faults {
			if f.name != rules.Forgets {
				continue
			}
			if f.during.until+int64(rules.Lease) <= h.Call() {
				over++
			}
			if f.during.from <= h.Acquired {
				begun++
			}
		}
		if over == begun {
			all[over] = append(all[over], h)
		}
	}
	return all
}

// findDisorder finds holds whose token is not greater than that of an earlier hold. Earlier
// holds are all that were acquired before this hold's Acquire was called, and conflicting ones
// that had ended before this hold was acquired.
func findDisorder(holds []*Hold) []Violation {
	var found []Violation
	bad := make(map[*Hold]bool)
	report := func(h, before *Hold) {
		if before != nil && h.Token <= before.Token && !bad[h] {
			bad[h] = true
			v := violation(Order, h, span{h.Acquired, h.Acquired}, "%v comes after %v", h, before)
			v.Holds = []*Hold{before, h}
			found = append(found, v)
		}
	}
	greater := func(a, b *Hold) *Hold {
		if a == nil || b.Token > a.Token {
			return b
		}
		return a
	}

	byCall := slices.SortedFunc(slices.Values(holds), func(a, b *Hold) int { return cmp.Compare(a.Call(), b.Call()) })
	var last *Hold // the greatest token of those acquired before the call
	next := 0
	for _, h := range byCall {
		for ; next < len(holds) && holds[next].Acquired <= h.Call(); next++ {
			last = greater(last, holds[next])
		}
		report(h, last)
	}

	byEnd := slices.SortedFunc(slices.Values(holds), func(a, b *Hold) int { return cmp.Compare(a.End, b.End) })
	var lastShared, lastAlone *Hold // the greatest tokens of those that had ended
	next = 0
	for _, h := range holds {
		for ; next < len(byEnd) && byEnd[next].End <= h.Acquired; next++ {
			switch e := byEnd[next]; {
			case e == h || e.Slots > 0:
			case e.Shared:
				lastShared = greater(lastShared, e)
			default:
				lastAlone = greater(lastAlone, e)
			}
		}
		if h.Slots > 0 {
			continue
		}
		report(h, lastAlone)
		if !h.Shared {
			report(h, lastShared)
		}
	}
	return found
}

// findEarly finds holds that began before the MinHold of a released hold, or the LockDelay
// of a hold that was not released, was over.
func findEarly(holds []*Hold, s *timeline) []Violation {
	var found []Violation
	for i, h := range holds {
		reserved := int64(0)
		switch {
		case h.MinHold > 0 && h.Released && (h.returned || s.processes[h.Worker].ended == math.MaxInt64):
			// Who was killed in Release may have died before the store had it.
			reserved = h.Call() + int64(h.MinHold)
		case h.Delay > 0 && !h.Released && s.processes[h.Worker].ended == h.End: // killed
			reserved = h.Sure + int64(h.Delay)
		case h.Delay > 0 && h.Lost:
			// The delay began before the holder noticed the loss.
			reserved = min(h.End, h.Sure) + int64(h.Delay-untoldTolerance)
		}
		for _, o := range holds[i+1:] {
			if o.Acquired >= reserved {
				break
			}
			if h.conflicts(o) && o.Acquired >= h.End {
				found = append(found, violation(Early, h, span{o.Acquired, reserved}, "%v comes too early after %v", o, h))
			}
		}
	}
	return found
}

// findUnhinted finds holds whose lease was broken and whose holders still believed
// in them for longer than within. It counts only the time in which the holder ran
// and no other fault was active.
func findUnhinted(holds []*Hold, s *timeline, within time.Duration) []Violation {
	if within == 0 {
		return nil
	}
	var found []Violation
	disturbed := s.disturbances()
	for _, f := range s.faults {
		for _, h := range holds {
			if f.token == 0 || f.lock != h.Name || !h.usesLease(f.token) || h.Acquired > f.during.from {
				continue
			}
			believed := span{f.during.until, min(h.End, h.Sure)}
			if length(believed.without(merge(append(slices.Clone(disturbed), h.pauses...)))) > within {
				found = append(found, violation(Unhinted, h, believed, "%v after the %s", h, f.name))
			}
		}
	}
	return found
}

// findTwice finds ticks that were run twice.
func findTwice(holds []*Hold) []Violation {
	var found []Violation
	first := map[int64]*Hold{}
	for _, h := range holds {
		if h.Tick == 0 {
			continue
		}
		if f := first[h.Tick]; f != nil {
			found = append(found, violation(Twice, h, span{h.Acquired, h.Acquired}, "%v and %v", f, h))
		}
		first[h.Tick] = h
	}
	return found
}

// findIdle finds times without a holder that were too long. It begins with the first hold: servers
// may grant nothing at first.
func findIdle(holds []*Hold, s *timeline, limit time.Duration) []Violation {
	if limit == 0 {
		return nil
	}
	var found []Violation
	free := holds[0].End
	for _, h := range holds[1:] {
		if s.undisturbed(free, h.Acquired) > limit {
			found = append(found, violation(Idle, h, span{free, h.Acquired}, "nobody had %s", h.Name))
		}
		free = max(free, h.End)
	}
	return found
}

// A demand is a lock that a worker must get after the heal. An empty worker stands
// for any worker.
type demand struct{ worker, name string }

// findStuck finds workers that were running at the heal and did not get a lock
// within bound after it.
func (s *timeline) findStuck(bound time.Duration) []Violation {
	end := s.healed + int64(bound)
	if s.healed > s.lastEvent {
		return nil
	}
	var found []Violation
	for _, w := range s.unserved(min(end, s.lastEvent)) {
		found = append(found, Violation{Fact: Stuck, Name: w.name, At: s.healed, Until: min(end, s.lastEvent),
			Text: fmt.Sprintf("%s did not get %s", cmp.Or(w.worker, "anybody"), w.name)})
	}
	return found
}

// unserved returns the demands that were not met between the heal and until.
func (s *timeline) unserved(until int64) []demand {
	want := map[demand]bool{}
	for _, c := range s.calls {
		p := s.processes[c.Worker]
		if p == nil || p.ended <= s.healed || p.started >= s.healed {
			continue
		}
		w := demand{c.Worker, c.Name}
		if c.Any {
			w.worker = ""
		}
		want[w] = true
	}
	for _, h := range s.holds {
		if h.Acquired > s.healed && h.Acquired <= until {
			delete(want, demand{h.Worker, h.Name})
			delete(want, demand{"", h.Name})
		}
	}
	var all []demand
	for w := range want {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b demand) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.worker, b.worker))
	})
	return all
}

// Waiting reports whether the run is not healed yet, or a worker has not got a lock
// since the heal.
func Waiting(events []Event) bool {
	s := buildTimeline(events)
	return s.healed > s.lastEvent || len(s.unserved(math.MaxInt64)) > 0
}
