package driver

import (
	"testing"
	"testing/synctest"
	"time"
)

// A machine simulates clocks that are read one after the other, and events that happen between
// the readings.
type machine struct {
	ran       time.Duration // time by Go's clock
	slept     time.Duration
	stepped   time.Duration // how far the wall clock was set by hand
	bootReads int           // how often the boot clock was read
	events    []event       // one before each of the next readings; nil for nothing
	lastShown time.Duration // the result of the last call of check
}

// An event happens to a machine between two readings, while another goroutine may use the same
// cache.
type event func(m *machine, c *bootCache)

func run(d time.Duration) event   { return func(m *machine, _ *bootCache) { m.ran += d } }
func sleep(d time.Duration) event { return func(m *machine, _ *bootCache) { m.slept += d } }
func step(d time.Duration) event  { return func(m *machine, _ *bootCache) { m.stepped += d } }

// readByAnother returns e followed by a reading of the clock in another goroutine, which no
// events disturb.
func readByAnother(e event) event {
	return func(m *machine, c *bootCache) {
		e(m, c)
		rest := m.events
		m.events = nil
		m.now(c)
		m.events = rest
	}
}

// bootTime returns the true time of the boot clock.
func (m *machine) bootTime() time.Duration { return 3*time.Hour + m.ran + m.slept }

// now reads the clock as Now does.
func (m *machine) now(c *bootCache) Instant {
	next := func() {
		m.ran += 50 * time.Nanosecond // a reading takes time
		if len(m.events) == 0 {
			return
		}
		e := m.events[0]
		m.events = m.events[1:]
		if e != nil {
			e(m, c)
		}
	}
	readClocks := func() (elapsed, wall time.Duration) {
		next()
		wall = 1e9*time.Second + m.ran + m.slept + m.stepped
		next()
		return m.ran, wall
	}
	return c.now(readClocks, func() time.Duration {
		next()
		m.bootReads++
		return m.bootTime()
	})
}

// check reads the clock and compares it with the truth.
func (m *machine) check(t *testing.T, c *bootCache, what ...any) (ok bool) {
	t.Helper()
	from := max(m.bootTime()-2*tolerance, m.lastShown) // nor may it go back
	got := time.Duration(m.now(c).mono) - origin
	if got < from || got > m.bootTime() {
		t.Errorf("%v: the clock shows %v, want %v to %v", what, got, from, m.bootTime())
		return false
	}
	m.lastShown = got
	return true
}

// TestBootCache checks that no sleep is missed and no reading is later than its moment,
// whatever happens between any two readings of a clock. It tries all ways in which up to three
// events can happen in the course of three calls.
func TestBootCache(t *testing.T) {
	const slots = 15 // a call reads five clocks at most
	events := []struct {
		name string
		event
	}{
		{"run 10µs", run(10 * time.Microsecond)}, {"run 500µs", run(500 * time.Microsecond)},
		{"run 10ms", run(10 * time.Millisecond)},
		{"sleep 500µs", sleep(500 * time.Microsecond)}, {"sleep 10ms", sleep(10 * time.Millisecond)},
		{"step 10ms", step(10 * time.Millisecond)}, {"step -7ms", step(-7 * time.Millisecond)},
		{"sleep 10ms, another", readByAnother(sleep(10 * time.Millisecond))},
	}
	try := func(at, which [3]int) bool {
		m, c := new(machine), new(bootCache)
		m.events = make([]event, slots)
		for i, slot := range at {
			m.events[slot] = events[which[i]].event
		}
		for call := range 3 {
			if !m.check(t, c, events[which[0]].name, events[which[1]].name, events[which[2]].name, "before the readings", at,
				"call", call) {
				return false
			}
		}
		return true
	}
	for a := range slots {
		for b := range a + 1 { // b and c may equal a, which leaves out one or two events
			for c := range b + 1 {
				for n := range len(events) * len(events) * len(events) {
					if !try([3]int{a, b, c}, [3]int{n % len(events), n / len(events) % len(events), n / len(events) / len(events)}) {
						return
					}
				}
			}
		}
	}
}

// A sleep that is hidden by setting the wall clock back is noticed once the machine has run for
// maxAge.
func TestBootCacheAge(t *testing.T) {
	m, c := new(machine), new(bootCache)
	m.check(t, c)
	m.slept += time.Hour
	m.stepped -= time.Hour
	m.ran += maxAge
	m.check(t, c, "a sleep that the wall clock does not show")
}

// A bubble whose time passes the present leaves nothing behind that others rely on.
func TestNowBesideOldBubble(t *testing.T) {
	before := Now()
	synctest.Test(t, func(*testing.T) {
		start := Now()
		time.Sleep(time.Hour)
		if got := Now().Sub(start); got != time.Hour {
			t.Errorf("an hour of a bubble took %v", got)
		}
		time.Sleep(50 * 365 * 24 * time.Hour)
		Now()
	})
	if got := Now().Sub(before); got < 0 || got > time.Hour {
		t.Errorf("a bubble of 50 years took %v outside", got)
	}
}

// Now returns the time of the boot clock, whether or not it reads that clock.
func TestNowIsTheBootClock(t *testing.T) {
	for range 1000 {
		from := readBootClock() - 2*tolerance
		got := time.Duration(Now().mono) - origin
		if most := readBootClock(); got < from || got > most {
			t.Fatalf("Now shows %v, want %v to %v", got, from, most)
		}
	}
}

// If there are two readings, the one that ends a lease first counts.
func TestTwoReadings(t *testing.T) {
	start := Instant{mono: int64(time.Hour), wall: int64(time.Hour)}
	end := start.Add(time.Minute)
	slept := Instant{mono: start.mono + int64(time.Second), wall: start.wall + int64(8*time.Hour)}
	if !end.Reached(slept) || end.Left(slept) >= 0 || slept.Sub(start) != 8*time.Hour {
		t.Errorf("after a sleep: reached %v, left %v, passed %v", end.Reached(slept), end.Left(slept), slept.Sub(start))
	}
	if got := slept.SubMono(start); got != time.Second {
		t.Errorf("a wait has lasted %v, want 1s, whatever the wall clock shows", got)
	}
	if got, want := slept.SteppedSince(start), 8*time.Hour-time.Second; got != want {
		t.Errorf("stepped by %v, want %v", got, want)
	}
	setBack := Instant{mono: end.mono, wall: start.wall - int64(time.Hour)}
	if !end.Reached(setBack) || end.Left(setBack) > 0 || setBack.SteppedSince(start) != 0 {
		t.Errorf("with the wall clock set back: reached %v, left %v", end.Reached(setBack), end.Left(setBack))
	}
}

// TestAt checks that At agrees with Now, also in a bubble, whose time is far from the machine's.
func TestAt(t *testing.T) {
	check := func(t *testing.T) {
		t.Helper()
		before := Now()
		got := At(time.Now())
		after := Now()
		if got.mono < before.mono-int64(2*tolerance) || got.mono > after.mono+int64(2*tolerance) {
			t.Errorf("At = %v, want %v to %v", got.mono, before.mono, after.mono)
		}
	}
	for range 1000 { // with a valid reading of the boot clock, and without one
		check(t)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		if got, want := At(time.Now()), Now(); got != want {
			t.Errorf("At in a bubble = %v, want %v", got, want)
		}
	})
}
