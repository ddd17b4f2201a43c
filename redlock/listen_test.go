package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// A hint comes when a majority is free, whether the releases come before or after the
// round is refused.
func TestWatch(t *testing.T) {
	const all, none = quorum.Set(0b11111), quorum.Set(0)
	tests := []struct {
		name          string
		before, after []int // nodes that publish before the round is refused, and after
		blocked       quorum.Set
		within        time.Duration // negative: no hint
	}{
		{"Nothing", nil, nil, all, -1},
		{"Majority", nil, []int{0, 1, 2}, all, 0},
		{"BeforeTheSleep", []int{0, 1, 2}, nil, all, 0},
		{"OneBefore", []int{0, 1}, []int{4}, all, 0},
		{"OthersAreFree", nil, []int{3}, 0b11100, 0},
		{"Minority", nil, []int{0, 1}, all, stragglerTimeout},
		{"MinorityBefore", []int{1}, nil, all, stragglerTimeout},
		{"TheSameTwice", nil, []int{2, 2, 2}, all, stragglerTimeout},
		// The round failed for another reason, which no release changes.
		{"FreeAnyway", nil, nil, none, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, lockTopic := newTopic()
				w := lockTopic.startWatch()
				for _, node := range tt.before {
					l.onMessage(node, "x", "7")
				}
				hints := lockTopic.arm(w, tt.blocked)
				for _, node := range tt.after {
					l.onMessage(node, "y", "1")
					l.onMessage(node, "x", "7")
				}
				began := time.Now()
				select {
				case waiters := <-hints:
					if took := time.Since(began); tt.within < 0 || took != tt.within || waiters != 7 {
						t.Errorf("a hint of %d after %v, want 7 after %v", waiters, took, tt.within)
					}
				case <-time.After(time.Minute):
					if tt.within >= 0 {
						t.Error("no hint")
					}
				}
			})
		})
	}
}

// newTopic returns the topic of the channel x in a listener of five nodes.
func newTopic() (*listener, *topic) {
	l := new(listener)
	l.init(&Driver{nodes: make([]*node, 5), params: quorum.Params{Nodes: 5, MaxTTL: time.Second}})
	return l, l.addUser("x")
}

// A forged release wakes a waiter, whatever number of waiters it tells.
func TestForgedRelease(t *testing.T) {
	for _, payload := range []string{"9223372036854775807", "9223372036854775808", "-9223372036854775808", "", "x"} {
		synctest.Test(t, func(t *testing.T) {
			l, lockTopic := newTopic()
			a := &attempt{topic: lockTopic, watch: lockTopic.startWatch()}
			l.onMessage(0, "x", payload)
			began := time.Now()
			a.sleep(t.Context(), time.Hour, &heldError{took: 2 * time.Millisecond})
			if slept := time.Since(began); slept > time.Second {
				t.Errorf("after a release for %q waiters, it sleeps for %v", payload, slept)
			}
		})
	}
}

// A waiter goes on when a majority has confirmed its subscription, or had before: it may have
// missed a release.
func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newTopic()
		l.closed = true // there are no servers
		name := lockOf("y")
		for _, confirmed := range [][]int{{0, 1, 2}, nil} {
			lockTopic, w := l.subscribe(&name)
			hints := lockTopic.arm(w, 0b11111)
			for _, node := range confirmed {
				l.onSubscribed(node, name.waitersKey, 20_000)
			}
			select {
			case waiters := <-hints: // or all 20,000 would ask at once
				if spread := spreadOf(waiters, time.Millisecond); confirmed != nil && spread != 2*time.Second {
					t.Errorf("%d waiters spread over %v, want 2 s", waiters, spread)
				}
			case <-time.After(stragglerTimeout - 1):
				t.Errorf("no hint after the nodes %v have confirmed", confirmed)
			}
		}
	})
}

// When a node confirms a subscription, all leases are checked, but not all at a time: the nodes
// would have no time for anything else.
func TestChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newIdleDriver(t)
		d.listener.subscribers = []*subscriber{}
		for range 2 * maxChecks {
			req := driver.Request{ID: "o", TTL: time.Minute, OnLost: func(error) {}}
			newLease(d, req, lockOf("x"), &round{d: d, nonce: d.newNonce(), start: driver.Now()}, 1)
		}
		d.listener.onSubscribed(0, breakChannel(d.nonceID), 1)
		synctest.Wait()
		if got := len(d.nodes[0].queue); got != maxChecks {
			t.Errorf("%d checks at a time, want %d", got, maxChecks)
		}
		d.life.End(nil)
	})
}
