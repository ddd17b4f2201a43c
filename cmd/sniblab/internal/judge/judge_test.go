package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/history"
)

// A run is a history that a test writes. Times are in milliseconds.
type run []history.Event

const ms = int64(time.Millisecond)

func (r *run) add(kind history.Kind, worker string, id int64, at int64, more ...func(*history.Event)) {
	e := history.Event{At: at * ms, Kind: kind, Worker: worker, ID: id, Name: "lock", Any: kind == history.Call}
	for _, m := range more {
		m(&e)
	}
	*r = append(*r, e)
}

// hold adds a hold whose holder said last at sure that it held the lock.
func (r *run) hold(worker string, id int64, token uint64, acquired, sure int64) {
	r.add(history.Call, worker, id, acquired-5)
	r.add(history.Acquired, worker, id, acquired, func(e *history.Event) { e.Token = token })
	r.add(Read, worker, id, acquired)
	r.add(history.Valid, worker, id, sure)
}

func (r *run) fault(name, worker string, from, until int64) {
	id := int64(len(*r) + 1000)
	set := func(e *history.Event) { e.Fault, e.Name = name, "" }
	r.add(history.Begin, worker, id, from, set)
	r.add(history.End, worker, id, until, set)
}

func (r *run) work(worker string, id int64, token uint64, from, until int64) {
	r.hold(worker, id, token, from, until-1)
	r.add(Write, worker, id, until)
	r.add(history.Release, worker, id, until)
}

// TestJudge judges broken histories, and the good ones beside them.
func TestJudge(t *testing.T) {
	tests := []struct {
		name   string
		tokens bool
		write  func(*run)
		want   Verdict
		text   string
	}{
		{"Good", true, func(r *run) {
			r.work("A", 1, 1, 100, 200)
			r.work("B", 1, 2, 210, 300)
		}, Safe, "safe"},
		{"Overlap", true, func(r *run) {
			r.work("A", 1, 1, 100, 1000)
			r.work("B", 1, 2, 300, 701)
		}, Overlap, "overlap of 400 ms"},
		{"NotProven", true, func(r *run) { // A may have been told in the meantime: the answer is missing
			r.hold("A", 1, 1, 100, 200)
			r.work("B", 1, 2, 300, 700)
		}, Safe, "safe"},
		{"PausedHolderBelievesNothing", true, func(r *run) {
			r.hold("A", 1, 1, 100, 200)
			r.fault(history.StopWorker, "A", 210, 1500)
			r.work("B", 1, 2, 1200, 1490)
			r.add(history.Valid, "A", 1, 1550) // within the time that it has to find out
		}, Safe, "safe"},
		{"PausedHolderBelievesAgain", true, func(r *run) {
			r.hold("A", 1, 1, 100, 200)
			r.fault(history.StopWorker, "A", 210, 1500)
			r.hold("B", 1, 2, 1200, 2000)
			r.add(history.Valid, "A", 1, 1900)
		}, Overlap, "overlap of 300 ms"},
		{"ToldLate", true, func(r *run) {
			r.hold("A", 1, 1, 100, 500)
			r.hold("B", 1, 2, 300, 700)
			r.add(history.Told, "A", 1, 510)
		}, ToldLate, "told late by 200 ms"},
		{"ToldLateAndUntold", true, func(r *run) { // the shorter overlap is the worse one
			r.hold("A", 1, 1, 100, 500)
			r.hold("B", 1, 2, 300, 700)
			r.add(history.Told, "A", 1, 510)
			r.hold("A", 2, 3, 600, 900)
			r.add(history.Release, "B", 1, 700)
		}, Overlap, "overlap of 100 ms"},
		{"KilledHolder", true, func(r *run) {
			r.hold("A", 1, 1, 100, 200)
			r.fault(history.KillWorker, "A", 250, 250)
			r.work("B", 1, 2, 260, 700)
		}, Safe, "safe"},
		{"LateWrite", true, func(r *run) {
			r.hold("A", 1, 1, 100, 200)
			r.add(history.Told, "A", 1, 210)
			r.work("B", 1, 2, 300, 400)
			r.add(Write, "A", 1, 500)
		}, Fenced, "safe only with fencing"},
		{"LateWriteWithoutTokens", false, func(r *run) {
			r.hold("A", 1, 0, 100, 200)
			r.add(history.Told, "A", 1, 210)
			r.work("B", 1, 0, 300, 400)
			r.add(Write, "A", 1, 500)
		}, Unfenced, "safe only with fencing, which it lacks"},
		{"LateWriteWhileOtherReads", true, func(r *run) { // it is lost when B writes, and refused by tokens
			r.hold("A", 1, 1, 100, 200)
			r.add(history.Told, "A", 1, 210)
			r.hold("B", 1, 2, 300, 350)
			r.add(Write, "A", 1, 360)
			r.add(Write, "B", 1, 400)
			r.add(history.Release, "B", 1, 400)
		}, Fenced, "safe only with fencing"},
		{"TokenGoesBack", true, func(r *run) {
			r.work("A", 1, 7, 100, 200)
			r.work("B", 1, 6, 210, 300)
		}, Back, "tokens go back"},
		{"TokensBeginAnew", true, func(r *run) {
			r.fault("clock", "", 10, 11)
			r.work("A", 1, 7, 100, 200)
			r.fault("loss", "", 210, 260)
			r.work("B", 1, 5, 300, 400)
			r.work("A", 2, 6, 410, 500)
		}, Assuming, "safe within its stated assumptions"},
		{"TokensBeginAnewDuringAcquire", true, func(r *run) { // it is answered before the fault takes effect, or after it
			r.fault("clock", "", 10, 11)
			r.work("A", 1, 7, 100, 200)
			r.fault("loss", "", 297, 350)
			r.work("B", 1, 8, 300, 320)
			r.work("A", 2, 5, 352, 400)
			r.work("B", 2, 6, 410, 500)
		}, Assuming, "safe within its stated assumptions"},
		{"TokenFromBeforeItsAnswer", true, func(r *run) { // the server gave it before the fault, and it comes after it
			r.fault("clock", "", 10, 11)
			r.work("A", 1, 7, 100, 200)
			r.add(history.Call, "B", 1, 205)
			r.fault("loss", "", 210, 260)
			r.add(history.Acquired, "B", 1, 270, func(e *history.Event) { e.Token = 8 })
			r.work("A", 2, 5, 300, 400)
			r.work("B", 2, 6, 410, 500)
		}, Assuming, "safe within its stated assumptions"},
		{"TokensBeginAnewTwice", true, func(r *run) { // once without a fault
			r.fault("clock", "", 10, 11)
			r.work("A", 1, 7, 100, 200)
			r.fault("loss", "", 210, 260)
			r.work("B", 1, 5, 300, 400)
			r.work("A", 2, 5, 410, 500)
		}, Back, "tokens go back"},
		{"TokensAfterBothFaults", true, func(r *run) { // they have begun anew before
			r.fault("clock", "", 10, 11)
			r.fault("loss", "", 50, 60)
			r.work("A", 1, 7, 100, 200)
			r.work("B", 1, 6, 210, 300)
		}, Back, "tokens go back"},
		{"TokensAfterOneFault", true, func(r *run) {
			r.fault("clock", "", 10, 11)
			r.work("A", 1, 7, 100, 200)
			r.work("B", 1, 6, 210, 300)
			r.fault("loss", "", 350, 360)
		}, Back, "tokens go back"},
		{"TokensAfterFaultsInOtherOrder", true, func(r *run) { // the server has not forgotten what it gave since
			r.fault("loss", "", 10, 11)
			r.work("A", 1, 7, 100, 200)
			r.fault("clock", "", 205, 206)
			r.work("B", 1, 6, 210, 300)
		}, Back, "tokens go back"},
		{"TokensAfterExcludedFault", true, func(r *run) {
			r.work("A", 1, 7, 100, 200)
			r.fault("forget", "", 210, 260)
			r.work("B", 1, 5, 300, 400)
		}, Assuming, "safe within its stated assumptions"},
		{"TokensLongAfterExcludedFault", true, func(r *run) { // A's first token excuses nothing that comes later
			r.work("A", 1, 7, 100, 200)
			r.fault("forget", "", 210, 260)
			r.work("B", 1, 5, 300, 400)
			r.work("A", 2, 4, 410, 500)
		}, Back, "tokens go back"},
		{"OverlapWhereTokensBeginAnew", true, func(r *run) {
			r.fault("clock", "", 10, 11)
			r.fault("loss", "", 50, 60)
			r.work("A", 1, 1, 100, 1000)
			r.work("B", 1, 2, 300, 701)
		}, Overlap, "overlap of 400 ms"},
		{"GrantReachesUsLate", true, func(r *run) { // B asked before A was granted, and was stopped
			r.add(history.Call, "B", 1, 50)
			r.work("A", 1, 7, 100, 200)
			r.add(history.Acquired, "B", 1, 210, func(e *history.Event) { e.Token = 6 })
		}, Safe, "safe"},
		{"SameTokenTwice", true, func(r *run) { // both pass the check
			r.hold("A", 1, 7, 100, 120)
			r.add(history.Told, "A", 1, 130)
			r.add(history.Call, "B", 1, 90)
			r.add(history.Acquired, "B", 1, 140, func(e *history.Event) { e.Token = 7 })
			r.add(Read, "B", 1, 140)
			r.add(Write, "A", 1, 150)
			r.add(Write, "B", 1, 160)
		}, Back, "tokens go back"},
		{"SameTokenOfTwoThatRan", true, func(r *run) { // whoever was granted first
			r.add(history.Call, "B", 1, 50)
			r.work("A", 1, 7, 100, 200)
			r.add(history.Acquired, "B", 1, 210, func(e *history.Event) { e.Token = 7 })
		}, Back, "tokens go back"},
		{"Blocked", true, func(r *run) {
			r.work("A", 1, 1, 100, 200)
			r.add(history.Heal, "", 0, 300)
			r.add(history.Call, "A", 2, 250)
			r.add(history.Call, "A", 3, 3000)
		}, Blocked, "blocked for ever"},
		{"NotBlocked", true, func(r *run) {
			r.work("A", 1, 1, 100, 200)
			r.add(history.Heal, "", 0, 300)
			r.work("A", 2, 2, 900, 1000)
			r.add(history.Call, "A", 3, 3000)
		}, Safe, "safe"},
		{"Excused", true, func(r *run) {
			r.work("A", 1, 1, 100, 1000)
			r.fault("forget", "", 200, 250)
			r.work("B", 1, 2, 300, 701)
		}, Assuming, "safe within its stated assumptions"},
		{"ExcusedLateWrite", false, func(r *run) { // it is lost when B writes, whose hold began after the fault
			r.hold("A", 1, 0, 100, 200)
			r.fault("forget", "A", 210, 1500)
			r.fault(history.StopWorker, "A", 210, 1500)
			r.hold("B", 1, 0, 1200, 1990)
			r.add(Write, "A", 1, 1500)
			r.add(Write, "B", 1, 2000)
			r.add(history.Release, "B", 1, 2000)
		}, Assuming, "safe within its stated assumptions"},
		{"ExcusedByFaultInProgress", true, func(r *run) { // A got the lock before the fault took effect
			r.fault("forget", "", 50, 200)
			r.work("A", 1, 1, 100, 1000)
			r.work("B", 1, 2, 300, 701)
		}, Assuming, "safe within its stated assumptions"},
		{"ExcuseOfAnotherHold", true, func(r *run) { // the fault was over before A got the lock
			r.fault("forget", "", 50, 60)
			r.work("A", 1, 1, 100, 1000)
			r.work("B", 1, 2, 300, 701)
		}, Overlap, "overlap of 400 ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r run
			for _, worker := range []string{"A", "B"} {
				r.add(history.Start, worker, 0, 1)
			}
			tt.write(&r)
			got := Judge(r, Rules{
				Tokens: tt.tokens, Bound: 2 * time.Second, Assumes: map[string]string{"forget": "the server keeps its memory"},
				Restart: Restart{"loss", "clock", "not after the other"},
			})
			if got.Verdict() != tt.want || got.Text() != tt.text {
				t.Errorf("verdict = %s, %q, want %s, %q: %+v", got.Verdict(), got.Text(), tt.want, tt.text, got)
			}
		})
	}
}

// TestErrors checks which texts of errors a result has.
func TestErrors(t *testing.T) {
	var r run
	fail := func(at int64, text string) {
		r.add(history.Failed, "A", at, at, func(e *history.Event) { e.Err = text })
	}
	for i, text := range []string{"too old", "refused at port 1", "", "no password", "refused at port 2",
		strings.Repeat("é", 400)} {
		fail(int64(i+1), text)
	}
	got := Judge(r, Rules{})
	if want := []string{"no password", "refused at port 2", strings.Repeat("é", 300)}; !slices.Equal(got.Errors, want) {
		t.Errorf("the errors are %q, want %q", got.Errors, want)
	}
	var all Result
	for _, r := range []Result{{Errors: []string{"first"}}, {Errors: []string{"second"}}, {Blocked: true, Errors: []string{"worst"}}, {Errors: []string{"last"}}} {
		all.Add(r)
	}
	if !slices.Equal(all.Errors, []string{"worst"}) {
		t.Errorf("the errors of several runs are %q, want those of the worst", all.Errors)
	}
}

// TestAdd checks that the worst run decides, and that its proof is kept.
func TestAdd(t *testing.T) {
	var all Result
	small, great := &history.Violation{}, &history.Violation{}
	for _, r := range []struct {
		Result
		worse bool
	}{
		{Result{Acquired: 1, Damage: 1, Tokens: true}, true},
		{Result{Acquired: 1, Overlaps: 1, ToldLate: 2 * time.Second, Evidence: Evidence{Worst: small}, Tokens: true}, true},
		{Result{Acquired: 1, Overlaps: 1, Untold: time.Second, Evidence: Evidence{Worst: great}, Tokens: true}, true},
		{Result{Acquired: 1, Overlaps: 1, Untold: time.Millisecond, Evidence: Evidence{Worst: small}, Tokens: true}, false},
		{Result{Acquired: 1, Overlaps: 1, ToldLate: 3 * time.Second, Evidence: Evidence{Worst: small}, Tokens: true}, false},
		{Result{Acquired: 1, Tokens: true}, false},
	} {
		if got := all.Add(r.Result); got != r.worse {
			t.Errorf("Add(%+v) = %v, want %v", r.Result, got, r.worse)
		}
	}
	if all.Acquired != 6 || all.Overlaps != 4 || all.Text() != "overlap of 1000 ms" || max(all.ToldLate, all.Untold) != 3*time.Second || all.Worst != great || !all.Tokens {
		t.Errorf("the sum is %+v", all)
	}
	if all.Add(Result{Acquired: 1}); all.Tokens {
		t.Error("a run without tokens is forgotten")
	}
	if all.Add(Result{Tokens: true}); all.Tokens {
		t.Error("a run without grants brings tokens back")
	}
}

// TestEvidence checks the sentence about what decided.
func TestEvidence(t *testing.T) {
	hold := func(worker string, token uint64, acquired int64) *history.Hold {
		return &history.Hold{Event: history.Event{Worker: worker}, Token: token, Acquired: acquired}
	}
	a, b := hold("A", 7, 1e9), hold("B", 6, 2e9)
	for want, e := range map[string]Evidence{
		"": {},
		"From 2.000 s to 3.000 s, A and B both believed that they held the lock.":            {Worst: &history.Violation{Holds: []*history.Hold{a, b}, At: 2e9, Until: 3e9}},
		"A got the lock with token 7 at 1.000 s, and then B got it with token 6 at 2.000 s.": {Disorder: &Disorder{b, a}},
		"At 3.000 s, the write of A overwrote that of B, which A had not seen when it read.": {First: &Damage{3e9, a, b}},
	} {
		if got := e.String(); got != want {
			t.Errorf("the evidence is %q, want %q", got, want)
		}
	}
}

// TestUnclaimed judges a write that is late while a newer holder works: a resource that learns
// tokens when they read refuses it, and one that learns them when they write loses it.
func TestUnclaimed(t *testing.T) {
	var r run
	r.hold("A", 1, 1, 100, 200)
	r.fault(history.StopWorker, "A", 210, 1500)
	r.hold("B", 1, 2, 1200, 1800)
	r.add(Write, "A", 1, 1490)
	r.add(Write, "B", 1, 1790)
	for _, tt := range []struct {
		unclaimed bool
		want      Verdict
	}{{false, Fenced}, {true, Back}} {
		if got := Judge(r, Rules{Tokens: true, Unclaimed: tt.unclaimed}); got.Verdict() != tt.want {
			t.Errorf("Unclaimed %v: verdict %s, want %s: %+v", tt.unclaimed, got.Verdict(), tt.want, got)
		}
	}
}
