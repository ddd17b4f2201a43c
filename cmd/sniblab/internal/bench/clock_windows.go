package main

import (
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// monotonic reads the clock that all processes of a host share, in nanoseconds.
func monotonic() int64 {
	kernel := windows.NewLazySystemDLL("kernel32.dll")
	read := func(name string) (n int64) {
		kernel.NewProc(name).Call(uintptr(unsafe.Pointer(&n))) //nolint:errcheck // neither can fail
		return n
	}
	n, perSecond := read("QueryPerformanceCounter"), read("QueryPerformanceFrequency")
	return n/perSecond*1e9 + n%perSecond*1e9/perSecond
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user); err != nil {
		panic(err) // the arguments are valid
	}
	// Units of 100 ns. The method Nanoseconds is for points in time.
	units := func(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) }
	return time.Duration(units(kernel)+units(user)) * 100
}
