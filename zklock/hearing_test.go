package zklock

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A session of 12 s in which the library pings every 4 s; a lease is 5 s, and a server reports within 3 s. Times are seconds
// after the connection began.
func TestHearing(t *testing.T) {
	type said struct{ at, answered float64 }
	tests := []struct {
		name string
		said []said
		asks []float64 // of the leader, each answered within 100 ms
		want []float64 // from when a lease counts
	}{
		{name: "New", asks: []float64{0, 3, 7}, want: []float64{0, 3, 7}},
		{name: "Silent", asks: []float64{8}, want: []float64{7}},
		{name: "Pinging", said: []said{{4, 4.1}, {8, 8.1}, {12, 12.1}}, asks: []float64{7.5, 11.5, 15.5}, want: []float64{7.5, 11.5, 15.5}},
		{name: "PingedARoundTripLess", said: []said{{4, 4.1}, {8, 8.1}}, asks: []float64{11.05}, want: []float64{11}},
		{name: "JustPinged", said: []said{{4, 4.1}, {9, 9.1}}, asks: []float64{10}, want: []float64{10}},
		{name: "PausedThenBusy", said: []said{{4, 4.1}}, asks: []float64{14, 15, 16.9, 17.2}, want: []float64{11, 11, 11, 17.2}},
		{name: "AnsweredLate", said: []said{{4, 9.9}, {8, 9.9}}, asks: []float64{10, 13}, want: []float64{7, 13}},
		{name: "NotAnswered", said: []said{{4, 30}, {8, 30}}, asks: []float64{10}, want: []float64{7}},
	}
	const timeout = 12 * time.Second
	zero := driver.Now()
	at := func(s float64) driver.Instant { return zero.Add(time.Duration(s * float64(time.Second))) }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h hearing
			h.begin(zero)
			for i, ask := range tt.asks {
				for len(tt.said) > 0 && tt.said[0].answered <= ask {
					h.add(exchange{at(tt.said[0].at), at(tt.said[0].answered)}, timeout)
					tt.said = tt.said[1:]
				}
				got := h.credit(at(ask), timeout)
				h.add(exchange{at(ask), at(ask + 0.1)}, timeout)
				if want := at(tt.want[i]); got != want {
					t.Errorf("what was asked at %v s counts from %v, want %v s", ask, got.Sub(zero), tt.want[i])
				}
			}
		})
	}
}

// What was said to one server is not reported by the next; but that one asks the leader when it takes the session up.
func TestHearingAnotherServer(t *testing.T) {
	const timeout = 12 * time.Second
	zero := driver.Now()
	var h hearing
	h.begin(zero)
	h.add(exchange{zero.Add(4 * time.Second), zero.Add(4 * time.Second)}, timeout)
	h.begin(zero.Add(5 * time.Second))
	if got, want := h.credit(zero.Add(13*time.Second), timeout), zero.Add(12*time.Second); got != want {
		t.Errorf("it counts from %v, want %v", got.Sub(zero), want.Sub(zero))
	}
}

// However the client pauses and however slow the way to its server is: when the server dies, a holder has stopped to rely on the
// session before the leader ends it. This is the argument of decision 0017, played.
func TestHearingHolds(t *testing.T) {
	const timeout = 12 * time.Second
	shortened, full := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 17))
		upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
		tick := timeout/8 + upTo(timeout/2-timeout/8)
		reports := upTo(tick / 2)   // the first of those that come twice in a tick
		unreported := false         // something has arrived since the last one
		heard := time.Duration(0)   // when the leader last was told
		arrived := time.Duration(0) // when the last one arrived
		arrive := func(at time.Duration) time.Duration {
			arrived = max(at, arrived) // they do not overtake one another
			for ; reports < arrived; reports += tick / 2 {
				if unreported {
					heard, unreported = reports, false
				}
			}
			unreported = true
			return arrived
		}
		zero := driver.Now()
		var h hearing
		h.begin(zero)
		said, waiting := time.Duration(0), []exchange(nil)
		for range 200 {
			said += upTo([]time.Duration{timeout / 50, timeout / 3, timeout}[r.IntN(3)])
			got := arrive(said + upTo([]time.Duration{timeout / 500, timeout / 2}[r.IntN(2)]))
			if got > heard+timeout {
				break // the session has ended before
			}
			before := heard // by the time this one reaches the leader, which answers it
			answered := got + upTo(timeout/100)
			for len(waiting) > 0 && !zero.Add(answered).Before(waiting[0].answered) {
				h.add(waiting[0], timeout)
				waiting = waiting[1:]
			}
			e := exchange{zero.Add(said), zero.Add(answered)}
			if r.IntN(3) == 0 { // a ping, whose answer is heard of before the next one
				waiting = append(waiting, e)
				slices.SortFunc(waiting, func(a, b exchange) int { return int(a.answered.Sub(b.answered)) })
				continue
			}
			start := h.credit(e.said, timeout)
			h.add(e, timeout)
			if ends := start.Add(tenure(timeout)).Sub(zero); ends > before+timeout {
				t.Fatalf("seed %d: what was said at %v counts until %v, and the leader ends the session at %v", seed, said, ends, before+timeout)
			}
			if start == e.said {
				full++
			} else {
				shortened++
			}
		}
	}
	if shortened < 100 || full < 100 {
		t.Errorf("%d leases were shortened and %d were not, want many of both", shortened, full)
	}
}

// The pings of the library are enough for a lease that begins after a long time without anything else.
func TestIdleSession(t *testing.T) {
	const timeout = 4 * time.Second
	s, _ := begun(t, timeout)
	for began := driver.Now(); driver.Now().Sub(began) < timeout; {
		time.Sleep(timeout / 10) // nothing happens, which is what matters
	}
	asked := driver.Now()
	start, _, err := s.ask(t.Context())
	if err != nil || asked.Sub(start) > timeout/4 { // a round trip; without pings it is 5/12
		t.Errorf("after a while without requests a lease counts from %v before the question (%v), want from then", asked.Sub(start), err)
	}
}

// Who could not get through for long gets a shorter lease, though the answer comes promptly then; and the full one when the
// server must have told the leader of it.
func TestSilenceShortens(t *testing.T) {
	const timeout = 9 * time.Second
	s, proxy := begun(t, timeout)
	link := 0
	var last, start driver.Instant
	livetest.Await(t, "answer on the connection that was silent", func() (err error) {
		link = s.linkNow()
		if _, err := s.confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		heal := proxy.Stall()
		last = driver.Now()                                // a ping may have been answered until now
		time.Sleep(timeout - tenure(timeout) + timeout/30) // the silence is what matters; after 2/3 the library leaves a server
		heal()
		if start, _, err = s.ask(t.Context()); err == nil && s.linkNow() != link {
			err = errApart
		}
		return err
	})
	if late := start.Add(tenure(timeout)).Sub(last.Add(timeout)); late > 0 {
		t.Errorf("a lease counts until %v after the session may have ended", late)
	}
}

// A lease that would be much shorter is worth a wait until the server must have told the leader of us, and one that is hardly shorter is not.
func TestConfirmWaits(t *testing.T) {
	const timeout = 4 * time.Second
	for _, tt := range []struct {
		name  string
		less  time.Duration // than a full lease
		waits bool
	}{
		{"Much", tenure(timeout) / 3, true},
		{"Hardly", tenure(timeout) / 12, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := begun(t, timeout)
			asked := driver.Now()
			s.mu.Lock()
			s.hearing = hearing{sure: asked.Add(tenure(timeout) - timeout - tt.less)}
			s.mu.Unlock()
			start, err := s.confirm(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if full := !start.Before(asked); full != tt.waits {
				t.Errorf("the lease counts from %v before it was asked for, after %v", asked.Sub(start), driver.Now().Sub(asked))
			}
		})
	}
}

// What is known of a session that nobody uses stays small.
func TestHearingForgets(t *testing.T) {
	const timeout = 15 * time.Second
	var h hearing
	now := driver.Now()
	h.begin(now)
	for i := range 10_000 {
		said := now.Add(time.Duration(i) * timeout / 3)
		h.add(exchange{said, said.Add(time.Millisecond)}, timeout)
	}
	if len(h.open) > 10 {
		t.Errorf("%d exchanges are remembered", len(h.open))
	}
}
