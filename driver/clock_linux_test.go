package driver

import (
	"testing"
	"time"
)

// The clock goes on while the machine sleeps, which only the boot clock sees.
func TestInstantCountsSleep(t *testing.T) {
	const up, sleep = 5 * time.Hour, 8 * time.Hour
	before := instant(up, up)
	after := instant(up+time.Second, up+time.Second+sleep)
	if got, want := after.Sub(before), sleep+time.Second; got != want {
		t.Errorf("a second and a sleep of %v took %v", sleep, got)
	}
	if got := after.SteppedSince(before); got != 0 {
		t.Errorf("stepped by %v: the one reading has it all", got)
	}
}

// Outside a bubble the clock runs with the real one.
func TestNowRuns(t *testing.T) {
	const pause = 5 * time.Millisecond
	began, start := time.Now(), Now()
	time.Sleep(pause) // time has to pass
	if got, most := Now().Sub(start), time.Since(began); got < pause || got > most {
		t.Errorf("a pause of %v to %v took %v", pause, most, got)
	}
}

// Where there are two readings, the one that ends a lease first counts.
func TestTwoReadings(t *testing.T) {
	start := Instant{mono: int64(time.Hour), wall: int64(time.Hour)}
	end := start.Add(time.Minute)
	slept := Instant{mono: start.mono + int64(time.Second), wall: start.wall + int64(8*time.Hour)}
	if !end.Reached(slept) || end.Left(slept) >= 0 || slept.Sub(start) != 8*time.Hour {
		t.Errorf("after a sleep: reached %v, left %v, passed %v", end.Reached(slept), end.Left(slept), slept.Sub(start))
	}
	if got, want := slept.SteppedSince(start), 8*time.Hour-time.Second; got != want {
		t.Errorf("stepped by %v, want %v", got, want)
	}
	setBack := Instant{mono: end.mono, wall: start.wall - int64(time.Hour)}
	if !end.Reached(setBack) || end.Left(setBack) > 0 || setBack.SteppedSince(start) != 0 {
		t.Errorf("with the wall clock set back: reached %v, left %v", end.Reached(setBack), end.Left(setBack))
	}
}
