package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Hold is the belief of a holder about one acquisition, according to its log.
type Hold struct {
	Event // the call; its ID and Worker identify the hold

	Acquired int64
	// When the holder was told, called Release, or was killed; or the end of the logs.
	End      int64
	Sure     int64 // until when the hold was valid, by what the holder has read last
	Released bool  // it ended by Release, which returned no error
	Lost     bool  // it ended because the holder was told
	Token    uint64

	returned bool   // its Release has returned
	pauses   []span // when the process did not run
}

func (h *Hold) String() string {
	shown := fmt.Sprintf("%s#%d %s token %d call %.4f acquired %.4f end %.4f valid until %.4f", h.Worker, h.ID, h.Name,
		h.Token,
		seconds(h.Call()), seconds(h.Acquired), seconds(h.End), seconds(h.Sure))
	if h.Shared {
		shown += " shared"
	}
	return "{" + shown + "}"
}

// Call returns the time when Acquire was called.
func (h *Hold) Call() int64 { return h.At }

func seconds(at int64) float64 { return float64(at) / 1e9 }

// conflicts reports whether h and o exclude each other.
func (h *Hold) conflicts(o *Hold) bool {
	return h.Slots == 0 && o.Slots == 0 && !(h.Shared && o.Shared)
}

// usesLease reports whether a hold that has not ended uses the lease with this token. A lease
// that is handed over within a process keeps the token of its first hold.
func (h *Hold) usesLease(token uint64) bool {
	return h.Token == token || h.Token > token && h.Slots == 0 && !h.Shared
}

// A span is the time between from and until.
type span struct{ from, until int64 }

// without returns the parts of s outside the gaps, which are ordered by time.
func (s span) without(gaps []span) []span {
	var left []span
	for _, o := range gaps {
		if o.until <= s.from {
			continue
		}
		if o.from >= s.until {
			break
		}
		if o.from > s.from {
			left = append(left, span{s.from, o.from})
		}
		s.from = o.until
	}
	if s.from < s.until {
		left = append(left, s)
	}
	return left
}

// overlap returns the time in which both processes ran and both holders believed that they
// held, each until its given end. sum is the length of that time without the gaps.
func overlap(a, b *Hold, endA, endB int64) (during span, sum time.Duration) {
	both := span{max(a.Acquired, b.Acquired), min(endA, endB)}
	if both.from >= both.until {
		return both, 0
	}
	gaps := merge(append(slices.Clone(a.pauses), b.pauses...))
	pieces := both.without(gaps)
	if len(pieces) > 0 {
		during = span{pieces[0].from, pieces[len(pieces)-1].until}
	}
	return during, length(pieces)
}

// length returns the sum of the lengths of spans that do not overlap.
func length(all []span) time.Duration {
	var sum time.Duration
	for _, s := range all {
		sum += time.Duration(s.until - s.from)
	}
	return sum
}

// merge sorts spans and joins those that touch or overlap.
func merge(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && s.from <= merged[n-1].until {
			merged[n-1].until = max(merged[n-1].until, s.until)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// A process is a worker according to the logs.
type process struct {
	started int64
	ended   int64 // MaxInt64 while it lives
	pauses  []span
}

// resumeTolerance is how long a process still counts as stopped after it was resumed: its
// goroutines need that time to notice lost holds.
const resumeTolerance = int64(100 * time.Millisecond)

// A timeline contains the holds, processes and faults of a run.
type timeline struct {
	holds     []*Hold // in the order of Acquired
	processes map[string]*process
	faults    []*fault
	calls     []Event
	left      []Event
	healed    int64
	lastEvent int64 // the last event
}

// Holds returns the holds of a run, in the order of Acquired.
func Holds(events []Event) []*Hold { return buildTimeline(events).holds }

// A fault is one fault, from its beginning to its end.
type fault struct {
	name   string
	lock   string // the affected lock; "" for all
	worker string // the affected process; "" for all
	token  uint64 // of the lease that it has ended; 0 if none
	during span
}

// buildTimeline builds a timeline from the events.
func buildTimeline(events []Event) *timeline {
	s := &timeline{processes: map[string]*process{}, healed: math.MaxInt64}
	type id struct {
		worker string
		id     int64
	}
	calls, holds, faults := map[id]Event{}, map[id]*Hold{}, map[int64]*fault{}
	proc := func(name string) *process {
		if s.processes[name] == nil {
			s.processes[name] = &process{ended: math.MaxInt64}
		}
		return s.processes[name]
	}
	for _, e := range events {
		s.lastEvent = max(s.lastEvent, e.At)
	}
	for _, e := range events {
		key := id{e.Worker, e.ID}
		switch e.Kind {
		case Start:
			proc(e.Worker).started = e.At
		case Call:
			calls[key] = e
			s.calls = append(s.calls, e)
		case Acquired:
			holds[key] = &Hold{
				Event: calls[key], Acquired: e.At, End: math.MaxInt64, Sure: e.At + int64(e.Valid), Token: e.Token,
			}
			s.holds = append(s.holds, holds[key])
		case Valid:
			if h := holds[key]; h != nil && e.At < h.End {
				h.Sure = max(h.Sure, e.At+int64(e.Valid))
			}
		case Over:
			if h := holds[key]; h != nil {
				h.Sure = min(h.Sure, e.At)
			}
		case Told, Release:
			if h := holds[key]; h != nil {
				h.End = min(h.End, e.At)
				h.Released = e.Kind == Release && h.End == e.At
				h.Lost = h.Lost || e.Kind == Told && h.End == e.At
			}
		case Released:
			if h := holds[key]; h != nil {
				h.returned, h.Released = true, h.Released && e.Err == ""
			}
		case Late:
			proc(e.Worker).pauses = append(proc(e.Worker).pauses, span{e.At, e.Until + resumeTolerance})
		case Bye:
			proc(e.Worker).ended = min(proc(e.Worker).ended, e.At)
		case Begin:
			f := &fault{name: e.Fault, lock: e.Name, worker: e.Worker, during: span{e.At, s.lastEvent}}
			faults[e.ID] = f
			s.faults = append(s.faults, f)
			switch e.Fault {
			case KillWorker:
				proc(e.Worker).ended = min(proc(e.Worker).ended, e.At)
			case StopWorker:
				proc(e.Worker).pauses = append(proc(e.Worker).pauses, span{e.At, math.MaxInt64})
			}
		case End:
			if f := faults[e.ID]; f != nil {
				f.during.until, f.token = e.At, e.Token
				if off := proc(e.Worker).pauses; f.name == StopWorker && len(off) > 0 {
					for i := range off {
						if off[i].from == f.during.from {
							off[i].until = e.At + resumeTolerance
						}
					}
				}
			}
		case Heal:
			s.healed = e.At
		case Left:
			s.left = append(s.left, e)
		}
	}
	for _, p := range s.processes {
		p.pauses = merge(p.pauses)
	}
	for _, h := range s.holds {
		p := proc(h.Worker)
		h.End = min(h.End, p.ended, s.lastEvent)
		h.pauses = p.pauses
	}
	slices.SortStableFunc(s.holds, func(a, b *Hold) int { return cmp.Compare(a.Acquired, b.Acquired) })
	return s
}
