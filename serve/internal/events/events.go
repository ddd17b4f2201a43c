// Package events tells what happens to the locks of a store, from one snapshot of the store to the
// next.
//
// A [Hub] lists the store while somebody listens, and compares each snapshot with the one before.
// So it misses what begins and ends between two snapshots, such as a short hold. If a lock passes
// from one holder to another in between, both are seen, because the hold has another token.
package events

import (
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// An Event is what happened to a lock between two snapshots.
type Event struct {
	Kind string        // wire.EventAcquired, wire.EventReleased or wire.EventChanged
	At   time.Time     // of the snapshot that showed it
	Lock driver.Status // as the snapshot showed it; without holders and waiters, it is gone
	Hold driver.Holding

	number int // of the snapshot
}

// shows returns how much an event holds in memory, as [maxShown] counts it.
func (e Event) shows() int { return 1 + len(e.Lock.Holders) + len(e.Lock.Waiters) }

// diff calls yield with what happened to a lock between two snapshots of it.
func diff(before, after driver.Status, yield func(kind string, hold driver.Holding)) {
	passed := false
	for _, h := range before.Holders {
		if find(after.Holders, h) < 0 {
			passed = true
			yield(wire.EventReleased, h)
		}
	}
	for _, h := range after.Holders {
		if find(before.Holders, h) < 0 {
			passed = true
			yield(wire.EventAcquired, h)
		}
	}
	if !passed && !looksEqual(before, after) {
		yield(wire.EventChanged, driver.Holding{})
	}
}

// find returns the place of a hold in a list, or -1.
func find(all []driver.Holding, h driver.Holding) int {
	for i, other := range all {
		if other.ID == h.ID && other.Token == h.Token && other.Foreign == h.Foreign {
			return i
		}
	}
	return -1
}

// looksEqual compares what people see of a lock, but for its times: they change all the time, and
// who has seen them can count on.
func looksEqual(a, b driver.Status) bool {
	if a.Shared != b.Shared || a.Slots != b.Slots || len(a.Holders) != len(b.Holders) || len(a.Waiters) != len(b.Waiters) {
		return false
	}
	for _, h := range a.Holders {
		i := find(b.Holders, h)
		if i < 0 {
			return false
		}
		other := b.Holders[i]
		if h.Holder != other.Holder || h.Inherited != other.Inherited || len(h.Heirs) != len(other.Heirs) ||
			h.Count != other.Count {
			return false
		}
	}
	for i, w := range a.Waiters {
		if other := b.Waiters[i]; w.ID != other.ID || w.Holder != other.Holder || w.Shared != other.Shared {
			return false
		}
	}
	return true
}
