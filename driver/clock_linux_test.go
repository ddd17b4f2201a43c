package driver

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// Now reads the clock that counts sleep: clock 7, CLOCK_BOOTTIME in linux/time.h.
func TestNowIsTheBootClock(t *testing.T) {
	read := func() time.Duration {
		var ts syscall.Timespec
		if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 7, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
			t.Fatal(errno)
		}
		return time.Duration(ts.Nano())
	}
	from, got, most := read(), time.Duration(Now().mono)-origin, read()
	// On a machine that has never slept, CLOCK_MONOTONIC shows the same: only the number tells.
	if got < from || got > most || clockBoottime != 7 {
		t.Errorf("Now shows %v by clock %d, want %v to %v by clock 7", got, clockBoottime, from, most)
	}
}

// In a bubble the clock follows the bubble's time.
func TestNowInBubble(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		start := Now()
		time.Sleep(time.Hour)
		if got := Now().Sub(start); got != time.Hour {
			t.Errorf("an hour of a bubble took %v", got)
		}
	})
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
