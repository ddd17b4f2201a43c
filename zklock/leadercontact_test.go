package zklock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestHearing uses a session of 12 s in which the library pings every 4 s. A lease lasts 5 s,
// and a server reports within 3 s. Times are seconds after the connection began.
func TestHearing(t *testing.T) {
	type message struct{ at, answered float64 }
	tests := []struct {
		name     string
		message  []message
		requests []float64 // to the leader, each answered within 100 ms
		want     []float64 // when the lease of each request begins
	}{
		{name: "New", requests: []float64{0, 3, 7}, want: []float64{0, 3, 7}},
		{name: "Silent", requests: []float64{8}, want: []float64{7}},
		{name: "Pinging", message: []message{{4, 4.1}, {8, 8.1}, {12, 12.1}}, requests: []float64{7.5, 11.5, 15.5},
			want: []float64{7.5, 11.5, 15.5}},
		{name: "PingedARoundTripLess", message: []message{{4, 4.1}, {8, 8.1}}, requests: []float64{11.05},
			want: []float64{11}},
		{name: "JustPinged", message: []message{{4, 4.1}, {9, 9.1}}, requests: []float64{10}, want: []float64{10}},
		{name: "PausedThenBusy", message: []message{{4, 4.1}}, requests: []float64{14, 15, 16.9, 17.2},
			want: []float64{11, 11, 11, 17.2}},
		{name: "AnsweredLate", message: []message{{4, 9.9}, {8, 9.9}}, requests: []float64{10, 13}, want: []float64{7, 13}},
		{name: "NotAnswered", message: []message{{4, 30}, {8, 30}}, requests: []float64{10}, want: []float64{7}},
	}
	const timeout = 12 * time.Second
	zero := driver.Now()
	at := func(s float64) driver.Instant { return zero.Add(time.Duration(s * float64(time.Second))) }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h leaderContact
			h.restart(zero)
			for i, request := range tt.requests {
				for len(tt.message) > 0 && tt.message[0].answered <= request {
					h.add(exchange{at(tt.message[0].at), at(tt.message[0].answered)}, timeout)
					tt.message = tt.message[1:]
				}
				got := h.leaseStart(at(request), timeout)
				h.add(exchange{at(request), at(request + 0.1)}, timeout)
				if want := at(tt.want[i]); got != want {
					t.Errorf("the request at %v s counts from %v, want %v s", request, got.Sub(zero), tt.want[i])
				}
			}
		})
	}
}

// TestHearingAnotherServer connects to another server, which does not report what its
// predecessor received. But it asks the leader when it takes the session up.
func TestHearingAnotherServer(t *testing.T) {
	const timeout = 12 * time.Second
	zero := driver.Now()
	var h leaderContact
	h.restart(zero)
	h.add(exchange{zero.Add(4 * time.Second), zero.Add(4 * time.Second)}, timeout)
	h.restart(zero.Add(5 * time.Second))
	if got, want := h.leaseStart(zero.Add(13*time.Second), timeout), zero.Add(12*time.Second); got != want {
		t.Errorf("it counts from %v, want %v", got.Sub(zero), want.Sub(zero))
	}
}

// TestHearingHolds simulates the argument of decision 0017: however the client pauses and
// however slow its connection is, when the server dies, a holder stops relying on the session
// before the leader ends it.
func TestHearingHolds(t *testing.T) {
	const timeout = 12 * time.Second
	shortened, full := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 17))
		upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
		tick := timeout/8 + upTo(timeout/2-timeout/8)
		reports := upTo(tick / 2)   // the first one; there are two in a tick
		unreported := false         // something has arrived since the last report
		heard := time.Duration(0)   // when the leader last heard of the session
		arrived := time.Duration(0) // when the last message arrived
		arrive := func(at time.Duration) time.Duration {
			arrived = max(at, arrived) // messages do not overtake one another
			for ; reports < arrived; reports += tick / 2 {
				if unreported {
					heard, unreported = reports, false
				}
			}
			unreported = true
			return arrived
		}
		zero := driver.Now()
		var h leaderContact
		h.restart(zero)
		said, waiting := time.Duration(0), []exchange(nil)
		for range 200 {
			said += upTo([]time.Duration{timeout / 50, timeout / 3, timeout}[r.IntN(3)])
			got := arrive(said + upTo([]time.Duration{timeout / 500, timeout / 2}[r.IntN(2)]))
			if got > heard+timeout {
				break // the session has ended before
			}
			before := heard // when this message reaches the leader, which answers it
			answered := got + upTo(timeout/100)
			for len(waiting) > 0 && !zero.Add(answered).Before(waiting[0].answered) {
				h.add(waiting[0], timeout)
				waiting = waiting[1:]
			}
			e := exchange{zero.Add(said), zero.Add(answered)}
			if r.IntN(3) == 0 { // a ping, whose answer is known before the next one
				waiting = append(waiting, e)
				slices.SortFunc(waiting, func(a, b exchange) int { return int(a.answered.Sub(b.answered)) })
				continue
			}
			start := h.leaseStart(e.sent, timeout)
			h.add(e, timeout)
			if ends := start.Add(leaseTTL(timeout)).Sub(zero); ends > before+timeout {
				t.Fatalf("seed %d: a message at %v gives a lease until %v, and the leader ends the session at %v", seed, said, ends,
					before+timeout)
			}
			if start == e.sent {
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

// TestIdleSession checks that the library's pings are enough for a full lease after a long time
// without other requests.
func TestIdleSession(t *testing.T) {
	const timeout = 4 * time.Second
	first, _ := newTestSession(t, timeout)
	livetest.Await(t, "full lease of an idle session", func() error { // a busy machine sends pings late
		s, err := first.d.session(t.Context())
		if err != nil {
			return err
		}
		for began := driver.Now(); driver.Now().Sub(began) < timeout; {
			time.Sleep(timeout / 10) // nothing happens, which is the point of the test
		}
		asked := driver.Now()
		start, _, err := s.confirmOnce(t.Context())
		if early := asked.Sub(start); err == nil && early > timeout/4 { // a round trip; without pings it is 5/12
			err = fmt.Errorf("it counts from %v before the question", early)
		}
		return err
	})
}

// TestHearingForgets checks that an unused session does not accumulate exchanges.
func TestHearingForgets(t *testing.T) {
	const timeout = 15 * time.Second
	var h leaderContact
	now := driver.Now()
	h.restart(now)
	for i := range 10_000 {
		said := now.Add(time.Duration(i) * timeout / 3)
		h.add(exchange{said, said.Add(time.Millisecond)}, timeout)
	}
	if len(h.unreported) > 10 {
		t.Errorf("%d exchanges are remembered", len(h.unreported))
	}
}

// TestSilence checks since when a session counts an outage: since the first ping without an answer,
// or the loss of the connection. TestRetryTimeout has a process that was stopped.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := make(chan struct{})
		close(up)
		s := &session{timeout: 5 * time.Minute, d: &Driver{}, up: up}
		for what, answer := range map[string]func(){
			"new connection": func() { s.onNegotiated(1, s.timeout, driver.Now()) },
			"ping":           func() { s.recordAnswer(driver.Now()) },
			"confirmation":   func() { s.recordConfirmation(driver.Now()) },
		} {
			for _, begin := range []func(){s.recordPing, func() { s.markDisconnected() }} {
				begin()
				time.Sleep(time.Second)
				s.recordPing()
				before := time.Since(s.silentSince())
				if answer(); before != time.Second || time.Since(s.silentSince()) != 0 {
					t.Errorf("the silence is %v, want 1 s, and %v after a %s", before, time.Since(s.silentSince()), what)
				}
				s.up = up
			}
		}
	})
}
