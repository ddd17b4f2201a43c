package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Hold is what its holder believed of one acquisition, as its log shows it.
type Hold struct {
	Event // the call; its ID and Worker name the hold

	Acquired int64
	End      int64 // the holder was told, called Release, or was killed; or the logs end
	Sure     int64 // the end of the last validity that the holder was told of
	Released bool  // it ended by Release, which found nothing wrong
	Lost     bool  // it ended when the holder was told
	Token    uint64

	off []span // the process did not run
}

func (h *Hold) String() string {
	shown := fmt.Sprintf("%s#%d %s token %d call %.4f acquired %.4f end %.4f valid until %.4f", h.Worker, h.ID, h.Name, h.Token,
		seconds(h.Call()), seconds(h.Acquired), seconds(h.End), seconds(h.Sure))
	if h.Shared {
		shown += " shared"
	}
	return "{" + shown + "}"
}

// Call is when Acquire was called.
func (h *Hold) Call() int64 { return h.At }

func seconds(at int64) float64 { return float64(at) / 1e9 }

// conflicts reports whether h and o exclude each other.
func (h *Hold) conflicts(o *Hold) bool {
	return h.Slots == 0 && o.Slots == 0 && !(h.Shared && o.Shared)
}

// isOf reports whether a hold that lives is of the lease with this token. A lease that passes from
// one goroutine of a process to the next has that of the first hold.
func (h *Hold) isOf(token uint64) bool {
	return h.Token == token || h.Token > token && h.Slots == 0 && !h.Shared
}

// A span is a time from and until.
type span struct{ from, until int64 }

// without returns what is left of s when the times in off are taken out, which are in the order of time.
func (s span) without(off []span) []span {
	var left []span
	for _, o := range off {
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

// overlap returns the time in which both holders believed that they held, running, each not beyond the given end. sum is its length without
// gaps.
func overlap(a, b *Hold, endA, endB int64) (during span, sum time.Duration) {
	both := span{max(a.Acquired, b.Acquired), min(endA, endB)}
	if both.from >= both.until {
		return both, 0
	}
	off := merge(append(slices.Clone(a.off), b.off...))
	pieces := both.without(off)
	for _, p := range pieces {
		sum += time.Duration(p.until - p.from)
	}
	if len(pieces) > 0 {
		during = span{pieces[0].from, pieces[len(pieces)-1].until}
	}
	return during, sum
}

// merge sorts spans and joins those that touch.
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

// A process is what the logs say of a worker.
type process struct {
	started int64
	ended   int64 // MaxInt64 while it lives
	off     []span
}

// resumption is how long after a stop a process still counts as stopped: its goroutines need that long to see what has become of them.
const resumption = int64(100 * time.Millisecond)

// story is what the events of a run amount to.
type story struct {
	holds     []*Hold // in the order of Acquired
	processes map[string]*process
	faults    []*fault
	calls     []Event
	left      []Event
	healed    int64
	ends      int64 // the last event
	failed    []Event
	released  []Event
}

// A fault is one, from its begin to its end.
type fault struct {
	name   string
	lock   string // that it is about; "" for all
	token  uint64 // of the lease that it has ended; 0 if it has not ended one
	during span
}

// read makes a story of the events.
func read(events []Event) *story {
	s := &story{processes: map[string]*process{}, healed: math.MaxInt64}
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
		s.ends = max(s.ends, e.At)
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
		case Failed:
			s.failed = append(s.failed, e)
		case Valid:
			if h := holds[key]; h != nil && e.At < h.End {
				h.Sure = max(h.Sure, e.At+int64(e.Valid))
			}
		case Told, Release:
			if h := holds[key]; h != nil {
				h.End = min(h.End, e.At)
				h.Released = e.Kind == Release && h.End == e.At
				h.Lost = h.Lost || e.Kind == Told && h.End == e.At
			}
		case Released:
			s.released = append(s.released, e)
			if h := holds[key]; h != nil && e.Err != "" {
				h.Released = false
			}
		case Late:
			proc(e.Worker).off = append(proc(e.Worker).off, span{e.At, e.Until + resumption})
		case Bye:
			proc(e.Worker).ended = min(proc(e.Worker).ended, e.At)
		case Begin:
			f := &fault{name: e.Fault, lock: e.Name, during: span{e.At, s.ends}}
			faults[e.ID] = f
			s.faults = append(s.faults, f)
			switch e.Fault {
			case KillWorker:
				proc(e.Worker).ended = min(proc(e.Worker).ended, e.At)
			case StopWorker:
				proc(e.Worker).off = append(proc(e.Worker).off, span{e.At, math.MaxInt64})
			}
		case End:
			if f := faults[e.ID]; f != nil {
				f.during.until, f.token = e.At, e.Token
				if off := proc(e.Worker).off; f.name == StopWorker && len(off) > 0 {
					for i := range off {
						if off[i].from == f.during.from {
							off[i].until = e.At + resumption
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
		p.off = merge(p.off)
	}
	for _, h := range s.holds {
		p := proc(h.Worker)
		h.End = min(h.End, p.ended, s.ends)
		h.off = p.off
	}
	slices.SortStableFunc(s.holds, func(a, b *Hold) int { return cmp.Compare(a.Acquired, b.Acquired) })
	return s
}
