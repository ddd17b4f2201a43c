//go:build unix

package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic reads the clock that all processes of a host share, in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every system has this clock
	}
	return ts.Nano()
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
