package history

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// sec returns s seconds as a time of these logs.
func sec(s float64) int64 { return int64(s * float64(time.Second)) }

// A testLog is a log whose events a test writes.
type testLog []Event

// hold adds a hold of a worker. Its Acquire was called 10 ms before acquired, and
// its validity is two seconds.
func (l *testLog) hold(worker, name string, token uint64, acquired float64, more ...func(*Event)) int64 {
	id := int64(len(*l) + 1)
	call := Event{At: sec(acquired - 0.01), Kind: Call, Worker: worker, ID: id, Name: name}
	for _, m := range more {
		m(&call)
	}
	*l = append(*l, call, Event{At: sec(acquired), Kind: Acquired, Worker: worker, ID: id, Token: token,
		Valid: 2 * time.Second})
	return id
}

func (l *testLog) add(kind Kind, worker string, id int64, at float64, more ...func(*Event)) {
	e := Event{At: sec(at), Kind: kind, Worker: worker, ID: id}
	for _, m := range more {
		m(&e)
	}
	*l = append(*l, e)
}

func (l *testLog) fault(name, worker string, from, until float64) {
	id := int64(len(*l) + 1)
	set := func(e *Event) { e.Fault = name }
	l.add(Begin, worker, id, from, set)
	l.add(End, worker, id, until, set)
}

// addBroken adds a hold of worker a, acquired at 1 and valid until 9, a break of the lease with
// the given token at 2, and the time at which a is told.
func (l *testLog) addBroken(token uint64, told float64, more ...func(*Event)) {
	id := l.hold("a", "x", 7, 1, more...)
	l.add(Valid, "a", id, 1.5, valid(7500*time.Millisecond))
	l.fault("break", "", 2, 2.1)
	begin, end := &(*l)[len(*l)-2], &(*l)[len(*l)-1]
	begin.Name, end.Token = "x", token
	l.add(Told, "a", id, told)
}

func shared(e *Event)                    { e.Shared = true }
func twoSlots(e *Event)                  { e.Slots = 2 }
func tick(e *Event)                      { e.Tick = 7 }
func anybody(e *Event)                   { e.Any = true }
func minHold(e *Event)                   { e.MinHold = time.Second }
func delay(e *Event)                     { e.Delay = time.Second }
func calledAt(at float64) func(*Event)   { return func(e *Event) { e.At = sec(at) } }
func until(at float64) func(*Event)      { return func(e *Event) { e.Until = sec(at) } }
func valid(d time.Duration) func(*Event) { return func(e *Event) { e.Valid = d } }

// TestCheck checks that Check finds each kind of violation and accepts legal histories.
func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		log  func(*testLog)
		want []Fact // nil for a legal history
	}{
		{"HandOver", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 1.5)
			l.add(Release, "b", l.hold("b", "x", 2, 1.5), 1.6)
		}, nil},
		{"OtherNames", func(l *testLog) {
			l.hold("a", "x", 1, 1)
			l.hold("b", "y", 1, 1)
		}, nil},
		{"TwoHolders", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 1.5)
			l.add(Release, "b", l.hold("b", "x", 2, 1.4), 1.6)
		}, []Fact{Exclusion}},
		{"TwoHoldersThreeTimes", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 2)
			l.add(Release, "b", l.hold("b", "x", 2, 1.5), 2)
			l.add(Release, "c", l.hold("c", "x", 3, 1.6), 2)
		}, []Fact{Exclusion, Exclusion, Exclusion}},
		{"TwoOfOneProcess", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 2)
			l.add(Release, "a", l.hold("a", "x", 2, 1.5), 2)
		}, []Fact{Exclusion}},
		{"Readers", func(l *testLog) {
			l.hold("a", "x", 1, 1, shared)
			l.hold("b", "x", 2, 1.1, shared)
		}, nil},
		{"ReaderAndWriter", func(l *testLog) {
			l.hold("a", "x", 1, 1, shared)
			l.hold("b", "x", 2, 1.1)
		}, []Fact{Exclusion}},
		{"WriterAndReader", func(l *testLog) {
			l.hold("a", "x", 1, 1)
			l.hold("b", "x", 2, 1.1, shared)
		}, []Fact{Exclusion}},
		{"Slots", func(l *testLog) {
			l.hold("a", "x", 1, 1, twoSlots)
			l.add(Release, "b", l.hold("b", "x", 2, 1.1, twoSlots), 1.2)
			l.hold("c", "x", 3, 1.2, twoSlots)
		}, nil},
		{"TooManySlots", func(l *testLog) {
			l.hold("a", "x", 1, 1, twoSlots)
			l.hold("b", "x", 2, 1.1, twoSlots)
			l.hold("c", "x", 3, 1.2, twoSlots)
		}, []Fact{Exclusion}},
		{"TooManyForOne", func(l *testLog) { // the others asked for more slots
			l.hold("a", "x", 1, 1, twoSlots)
			l.hold("b", "x", 2, 1.1, func(e *Event) { e.Slots = 3 })
			l.hold("c", "x", 3, 1.2, func(e *Event) { e.Slots = 3 })
		}, []Fact{Exclusion}},
		{"SlotsOfAStopped", func(l *testLog) {
			l.hold("a", "x", 1, 1, twoSlots)
			l.fault(StopWorker, "a", 1.05, 5)
			l.hold("b", "x", 2, 1.1, twoSlots)
			l.hold("c", "x", 3, 1.2, twoSlots)
		}, nil},

		{"Told", func(l *testLog) {
			l.add(Told, "a", l.hold("a", "x", 1, 1), 2.9)
			l.add(Release, "b", l.hold("b", "x", 2, 2.95), 3)
		}, nil},
		{"ToldTooLate", func(l *testLog) {
			l.add(Told, "a", l.hold("a", "x", 1, 1), 2.9)
			l.add(Release, "b", l.hold("b", "x", 2, 2.8), 3)
		}, []Fact{Exclusion}},
		{"ToldAfterValidity", func(l *testLog) { // valid until 3
			l.add(Told, "a", l.hold("a", "x", 1, 1), 3.5)
			l.add(Release, "b", l.hold("b", "x", 2, 3.1), 3.6)
		}, []Fact{Untold}},
		{"ToldAfterTwoBelieved", func(l *testLog) { // valid until 3
			l.add(Told, "a", l.hold("a", "x", 1, 1), 3.5)
			l.add(Release, "b", l.hold("b", "x", 2, 2.9), 3.6)
		}, []Fact{Exclusion, Untold}},
		{"ToldAfterTheEnd", func(l *testLog) {
			id := l.hold("a", "x", 1, 1)
			l.add(Over, "a", id, 1.5)
			l.add(Told, "a", id, 2)
			l.add(Release, "b", l.hold("b", "x", 2, 1.6), 2.1)
		}, []Fact{Untold}},
		{"ToldALittleAfterValidity", func(l *testLog) {
			l.add(Told, "a", l.hold("a", "x", 1, 1), 3.2)
			l.add(Release, "b", l.hold("b", "x", 2, 3.1), 3.6)
		}, nil},
		{"NeverTold", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 4)
			l.add(Release, "b", l.hold("b", "x", 2, 3.1), 3.6)
		}, []Fact{Untold}},
		{"Renewed", func(l *testLog) {
			id := l.hold("a", "x", 1, 1)
			l.add(Valid, "a", id, 2, valid(2*time.Second))
			l.add(Release, "a", id, 3.5)
			l.hold("b", "x", 2, 3.4)
		}, []Fact{Exclusion}},
		{"RenewalOfTheEnded", func(l *testLog) { // a reading after the end does not count
			id := l.hold("a", "x", 1, 1)
			l.add(Told, "a", id, 2)
			l.add(Valid, "a", id, 2.1, valid(2*time.Second))
			l.hold("b", "x", 2, 2.5)
		}, nil},

		{"Killed", func(l *testLog) {
			l.hold("a", "x", 1, 1)
			l.fault(KillWorker, "a", 1.2, 1.2)
			l.hold("b", "x", 2, 1.3)
		}, nil},
		{"KilledLater", func(l *testLog) {
			l.hold("a", "x", 1, 1)
			l.hold("b", "x", 2, 1.3)
			l.fault(KillWorker, "a", 1.4, 1.4)
		}, []Fact{Exclusion}},
		{"Broken", func(l *testLog) { l.addBroken(7, 4) }, nil},
		{"BrokenAndNotTold", func(l *testLog) { l.addBroken(7, 4.2) }, []Fact{Unhinted}},
		{"BrokenAfterAHandOver", func(l *testLog) { l.addBroken(5, 4.2) }, []Fact{Unhinted}},
		{"OtherReaderBroken", func(l *testLog) { l.addBroken(5, 4.2, shared) }, nil},
		{"NotBroken", func(l *testLog) { l.addBroken(0, 4.2) }, nil},
		{"BrokenBefore", func(l *testLog) { l.addBroken(8, 4.2) }, nil},
		{"BrokenAndStopped", func(l *testLog) {
			l.addBroken(7, 5.2)
			l.fault(StopWorker, "a", 2.5, 4)
		}, nil},
		{"BrokenAndDisturbed", func(l *testLog) {
			l.addBroken(7, 5.2)
			l.fault("store-restart", "", 2.5, 4)
		}, nil},
		{"BrokenWhenAnotherWasStopped", func(l *testLog) {
			l.addBroken(7, 5.2)
			l.fault(StopWorker, "b", 2.5, 4)
		}, []Fact{Unhinted}},
		{"BrokenAndOver", func(l *testLog) { // at the end of its validity
			id := l.hold("a", "x", 7, 1)
			l.fault("break", "", 2, 2.1)
			(*l)[len(*l)-2].Name, (*l)[len(*l)-1].Token = "x", 7
			l.add(Told, "a", id, 4.2)
		}, nil},

		{"Stopped", func(l *testLog) { // and told when it resumes
			id := l.hold("a", "x", 1, 1)
			l.fault(StopWorker, "a", 1.1, 5)
			l.add(Told, "a", id, 5.05)
			l.add(Release, "b", l.hold("b", "x", 2, 3.1), 5.1)
		}, nil},
		{"StoppedAndNotTold", func(l *testLog) {
			id := l.hold("a", "x", 1, 1)
			l.fault(StopWorker, "a", 1.1, 5)
			l.add(Release, "b", l.hold("b", "x", 2, 3.1), 6)
			l.add(Valid, "b", 0, 3.2)
			l.add(Told, "a", id, 5.9)
			l.add(Valid, "b", 0, 6)
		}, []Fact{Untold}},
		// It resumes within its validity, and another worker has the lock.
		{"StoppedTooShort", func(l *testLog) {
			id := l.hold("a", "x", 1, 1)
			l.fault(StopWorker, "a", 1.1, 1.5)
			l.add(Told, "a", id, 2.5)
			l.add(Release, "b", l.hold("b", "x", 2, 1.3), 2.6)
		}, []Fact{Exclusion}},
		{"Late", func(l *testLog) { // the machine did not schedule it
			id := l.hold("a", "x", 1, 1)
			l.add(Late, "a", 0, 2.9, until(4))
			l.add(Told, "a", id, 4.01)
			l.add(Release, "b", l.hold("b", "x", 2, 3.1), 4.5)
		}, nil},

		{"TokenBack", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 5, 1), 1.1)
			l.add(Release, "b", l.hold("b", "x", 4, 1.2), 1.3)
		}, []Fact{Order}},
		{"TokenTwice", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 5, 1), 1.1)
			l.add(Release, "b", l.hold("b", "x", 5, 1.2), 1.3)
		}, []Fact{Order}},
		{"TokenBackOfAWaiter", func(l *testLog) { // its call came before the other grant
			l.add(Release, "a", l.hold("a", "x", 5, 1), 1.1)
			l.add(Release, "b", l.hold("b", "x", 4, 1.2, calledAt(0.5)), 1.3)
		}, []Fact{Order}},
		{"TokensOfReaders", func(l *testLog) { // both were called before either was acquired
			l.hold("a", "x", 5, 1, shared)
			l.hold("b", "x", 4, 1.1, shared, calledAt(0.9))
		}, nil},
		{"TokenBackOfAReader", func(l *testLog) {
			l.hold("a", "x", 5, 1, shared)
			l.hold("b", "x", 4, 1.1, shared)
		}, []Fact{Order}},
		{"TokenBackAfterKill", func(l *testLog) {
			l.hold("a", "x", 5, 1)
			l.fault(KillWorker, "a", 1.1, 1.1)
			l.hold("b", "x", 4, 4)
		}, []Fact{Order}},
		{"TokenBackAfterForget", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 5, 1), 1.7)
			l.fault("store-restart", "", 1.2, 1.5)
			l.add(Release, "a", l.hold("a", "x", 6, 1.8), 1.9) // it was handed over
			l.add(Release, "b", l.hold("b", "x", 2, 4), 4.1)
		}, nil},
		{"TokenBackSinceForget", func(l *testLog) {
			l.fault("store-restart", "", 1.2, 1.5)
			l.add(Release, "a", l.hold("a", "x", 3, 4), 4.1)
			l.add(Release, "b", l.hold("b", "x", 2, 5), 5.1)
		}, []Fact{Order}},

		{"MinHold", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1, minHold), 1.1)
			l.hold("b", "x", 2, 2)
		}, nil},
		{"MinHoldBroken", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1, minHold), 1.1)
			l.hold("b", "x", 2, 1.8)
		}, []Fact{Early}},
		{"MinHoldOfAKilled", func(l *testLog) { // who may have died before the store had the release
			l.add(Release, "a", l.hold("a", "x", 1, 1, minHold), 1.1)
			l.fault(KillWorker, "a", 1.15, 1.2)
			l.hold("b", "x", 2, 1.3)
		}, nil},
		{"MinHoldOfAKilledLater", func(l *testLog) {
			id := l.hold("a", "x", 1, 1, minHold)
			l.add(Release, "a", id, 1.1)
			l.add(Released, "a", id, 1.12)
			l.fault(KillWorker, "a", 1.15, 1.2)
			l.hold("b", "x", 2, 1.3)
		}, []Fact{Early}},
		{"LockDelay", func(l *testLog) { // valid until 3
			l.hold("a", "x", 1, 1, delay)
			l.fault(KillWorker, "a", 1.2, 1.2)
			l.hold("b", "x", 2, 4.1)
		}, nil},
		{"LockDelayBroken", func(l *testLog) {
			l.hold("a", "x", 1, 1, delay)
			l.fault(KillWorker, "a", 1.2, 1.2)
			l.hold("b", "x", 2, 3.9)
		}, []Fact{Early}},
		{"LockDelayOfALost", func(l *testLog) { // told at 2, before the end of its validity
			l.add(Told, "a", l.hold("a", "x", 1, 1, delay), 2)
			l.hold("b", "x", 2, 2.8)
		}, nil},
		{"LockDelayOfALostBroken", func(l *testLog) {
			l.add(Told, "a", l.hold("a", "x", 1, 1, delay), 2)
			l.hold("b", "x", 2, 2.6)
		}, []Fact{Early}},
		{"LockDelayOfAToldLate", func(l *testLog) { // valid until 3
			l.add(Told, "a", l.hold("a", "x", 1, 1, delay), 3.6)
			l.hold("b", "x", 2, 3.8)
		}, nil},
		{"LockDelayOfAReleased", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1, delay), 1.1)
			l.hold("b", "x", 2, 1.2)
		}, nil},
		{"LockDelayOfAReleasedBeforeItsKill", func(l *testLog) { // the fault is logged before the signal is sent
			l.add(Release, "a", l.hold("a", "x", 1, 1, delay), 1.15)
			l.fault(KillWorker, "a", 1.1, 1.2)
			l.hold("b", "x", 2, 1.3)
		}, nil},
		{"TickTwice", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1, tick), 1.1)
			l.add(Release, "b", l.hold("b", "x", 2, 1.2, tick), 1.3)
		}, []Fact{Twice}},

		{"Progress", func(l *testLog) {
			l.add(Heal, "", 0, 10)
			l.add(Call, "a", 90, 9, func(e *Event) { e.Name = "x" })
			l.hold("a", "x", 1, 12)
			l.add(Bye, "a", 0, 30)
		}, nil},
		{"Stuck", func(l *testLog) {
			l.add(Call, "a", 90, 9, func(e *Event) { e.Name = "x" })
			l.add(Heal, "", 0, 10)
			l.add(Bye, "a", 0, 30)
		}, []Fact{Stuck}},
		{"ProgressTooLate", func(l *testLog) {
			l.add(Heal, "", 0, 10)
			l.add(Call, "a", 90, 9, func(e *Event) { e.Name = "x" })
			l.hold("a", "x", 1, 16)
			l.add(Bye, "a", 0, 30)
		}, []Fact{Stuck}},
		{"ProgressOfAnother", func(l *testLog) {
			l.add(Heal, "", 0, 10)
			l.add(Call, "a", 90, 9, func(e *Event) { e.Name = "x" })
			l.add(Release, "b", l.hold("b", "x", 1, 12), 13)
			l.add(Bye, "a", 0, 30)
		}, []Fact{Stuck}},
		{"ProgressOfAnybody", func(l *testLog) {
			l.add(Heal, "", 0, 10)
			l.add(Call, "a", 90, 9, func(e *Event) { e.Name = "x" }, anybody)
			l.add(Release, "b", l.hold("b", "x", 1, 12, anybody), 13)
			l.add(Bye, "a", 0, 30)
		}, nil},
		{"StuckAndKilled", func(l *testLog) {
			l.add(Call, "a", 90, 8, func(e *Event) { e.Name = "x" })
			l.fault(KillWorker, "a", 9, 9)
			l.add(Heal, "", 0, 10)
			l.add(Bye, "b", 0, 30)
		}, nil},
		{"Idle", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 2)
			l.add(Release, "b", l.hold("b", "x", 2, 9), 9.1)
		}, []Fact{Idle}},
		{"IdleUnderFaults", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1), 2)
			l.fault("store-pause", "", 3, 5)
			l.add(Release, "b", l.hold("b", "x", 2, 9), 9.1)
		}, nil},
		{"HeldAllTheTime", func(l *testLog) {
			l.add(Release, "a", l.hold("a", "x", 1, 1, twoSlots), 9)
			l.add(Release, "b", l.hold("b", "x", 2, 2, twoSlots), 3)
			l.add(Release, "b", l.hold("b", "x", 3, 9.1, twoSlots), 9.2)
		}, nil},
		{"Left", func(l *testLog) {
			l.add(Left, "", 0, 10, func(e *Event) { e.Name, e.Err = "x", "a holder" })
		}, []Fact{Leftover}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := testLog{{At: 1, Kind: Start, Worker: "a"}, {At: 1, Kind: Start, Worker: "b"}, {At: 1, Kind: Start, Worker: "c"}}
			tt.log(&l)
			slices.SortStableFunc(l, func(a, b Event) int { return int(a.At - b.At) })
			// The logs continue after the last event.
			l = append(l, Event{At: l[len(l)-1].At + sec(0.5), Kind: Start, Worker: "z"})
			var got []Fact
			r := Check(l, Rules{
				Bound: 5 * time.Second, Hint: 2 * time.Second, Idle: 6 * time.Second, Forgets: "store-restart", Lease: 2 * time.Second,
			})
			for _, v := range r.Violations {
				got = append(got, v.Fact)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Check = %v, want %v\n%v", got, tt.want, r.Violations)
			}
		})
	}
}

// TestAllowance checks that an Allowance covers only its facts and names, under its
// fault, for its time.
func TestAllowance(t *testing.T) {
	overlap := func(l *testLog) { // from 1.4 to 1.6
		l.add(Release, "a", l.hold("a", "x", 1, 1), 1.6)
		l.hold("b", "x", 2, 1.4)
	}
	broken := Allowance{Fault: "break", Facts: []Fact{Exclusion}, For: 500 * time.Millisecond,
		Why: "the hint is on its way"}
	named := func(name string) Allowance {
		a := broken
		a.Names = []string{name}
		return a
	}
	tests := []struct {
		name  string
		fault func(*testLog)
		a     Allowance
		want  bool
	}{
		{"NoFault", func(*testLog) {}, broken, false},
		{"During", func(l *testLog) { l.fault("break", "", 1, 2) }, broken, true},
		{"SoonAfter", func(l *testLog) { l.fault("break", "", 1.2, 1.2) }, broken, true},
		{"TooLate", func(l *testLog) { l.fault("break", "", 1, 1) }, broken, false},
		{"SoonAfterWithoutStall", func(l *testLog) {
			l.fault("break", "", 1, 1)
			l.fault("late-cut", "", 1.1, 1.3)
		}, broken, true},
		{"TooLateWithoutStall", func(l *testLog) {
			l.fault("break", "", 1, 1)
			l.fault("late-cut", "", 0.5, 1.05)
		}, broken, false},
		{"TooLateWithoutPause", func(l *testLog) {
			l.fault("break", "", 1, 1)
			l.fault(StopWorker, "c", 1.1, 1.3)
		}, broken, false},
		{"Before", func(l *testLog) { l.fault("break", "", 1.5, 1.55) }, broken, false},
		{"OtherLock", func(l *testLog) {
			l.fault("break", "", 1, 2)
			(*l)[len(*l)-2].Name = "y"
		}, broken, false},
		{"OtherFault", func(l *testLog) { l.fault("kill", "", 1, 2) }, broken, false},
		{"OtherFact", func(l *testLog) { l.fault("break", "", 1, 2) },
			Allowance{Fault: "break", Facts: []Fact{Order}, For: time.Minute, Why: "x"}, false},
		{"Name", func(l *testLog) { l.fault("break", "", 1, 2) }, named("x"), true},
		{"OtherName", func(l *testLog) { l.fault("break", "", 1, 2) }, named("y"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := testLog{}
			overlap(&l)
			tt.fault(&l)
			slices.SortStableFunc(l, func(a, b Event) int { return int(a.At - b.At) })
			r := Check(l, Rules{Allowed: []Allowance{tt.a}})
			if len(r.Violations) != 1 || (r.Violations[0].Allowed != "") != tt.want {
				t.Errorf("Check = %+v, want one violation, allowed: %v", r.Violations, tt.want)
			}
		})
	}
}

// TestLog checks that Read returns the events of all logs ordered by time, without
// an incomplete last line.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for path, events := range map[string][]Event{
		one: {{At: 1, Kind: Start}, {At: 3, Kind: Call, ID: 1, Name: "x", Slots: 2}},
		two: {{At: 2, Kind: Failed, Err: "no\nluck 77", Odd: true}},
	} {
		l, err := Create(path, filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			l.Add(e)
		}
	}
	f, err := os.OpenFile(two, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"at":4,"ki`); err != nil {
		t.Fatal(err)
	}
	got, err := Read(one, two)
	want := []Event{
		{At: 1, Kind: Start, Worker: "one"}, {At: 2, Kind: Failed, Worker: "two", Err: "no\nluck 77", Odd: true},
		{At: 3, Kind: Call, Worker: "one", ID: 1, Name: "x", Slots: 2},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Read = %v, %v, want %v", got, err, want)
	}
	if r := Check(got, Rules{}); r.Odd["failed: no\nluck N"] != 1 {
		t.Errorf("odd errors = %v, want one", r.Odd)
	}
}
