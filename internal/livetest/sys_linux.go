package livetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unsupported says why no server can be started on this system, or is empty.
const unsupported = ""

// childAttributes returns a copy of sys with those that [StartTied] needs.
func childAttributes(sys *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr := syscall.SysProcAttr{}
	if sys != nil {
		attr = *sys
	}
	attr.Setpgid, attr.Pdeathsig = true, syscall.SIGKILL
	return &attr
}

// Hang stops a process (SIGSTOP) and its descendants, and waits until they are stopped.
func Hang(pid int) error {
	return poll(Patience, nil, func() error {
		var last error
		for _, pid := range processTree(pid) {
			if !isIn(pid, "TtZX") { // stopped, dead or gone
				last = fmt.Errorf("process %d still runs", pid)
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					last = err
				}
			}
		}
		return last
	})
}

// Resume undoes Hang. Parents come last, so they find their children running.
func Resume(pid int) error {
	var errs []error
	for _, pid := range slices.Backward(processTree(pid)) {
		if err := syscall.Kill(pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// kill kills the process and its descendants, and waits until they have ended: as long as one is
// there, PostgreSQL refuses to start in the same folder. It stops the process first, so that it
// starts no more children and does not reap dead ones: their ids are not reused.
func kill(pid int) {
	_ = Hang(pid) // a process that can't be stopped can still be killed
	tree := processTree(pid)
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGKILL) // fails if it is gone already
	}
	_ = poll(Patience, nil, func() error { // that one lives on shows when it is in the way
		for _, pid := range tree {
			if !isIn(pid, "ZX") {
				return fmt.Errorf("process %d still runs", pid)
			}
		}
		return nil
	})
}

// quit asks a process to end, also if it hangs.
func quit(pid int, with os.Signal) error {
	return errors.Join(syscall.Kill(pid, with.(syscall.Signal)), Resume(pid))
}

// processTree returns the process and its descendants, parents first. The list is
// complete if they are stopped.
func processTree(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		for _, list := range readMatching(fmt.Sprintf("/proc/%d/task/*/children", all[i])) {
			for _, field := range strings.Fields(list) {
				if child, err := strconv.Atoi(field); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// cpuTime returns the processor time of a process and its descendants, without that of threads that
// have ended.
func cpuTime(pid int) time.Duration {
	const tick = time.Second / 100 // the unit of stat files
	var total time.Duration
	for _, pid := range processTree(pid) {
		for _, text := range readMatching(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) {
			total += time.Duration(number(strings.Fields(text), 0))
		}
		for _, text := range readMatching(fmt.Sprintf("/proc/%d/stat", pid)) {
			fields := statFields(text)
			total += tick * time.Duration(number(fields, 13)+number(fields, 14)) // of children that have ended
		}
	}
	return total
}

// number returns a field as a number, or 0 if it is none.
func number(fields []string, index int) int64 {
	if index >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseInt(fields[index], 10, 64)
	return n
}

// isIn reports whether all threads of the process are in one of the states, or gone.
func isIn(pid int, states string) bool {
	for _, stat := range readMatching(fmt.Sprintf("/proc/%d/task/*/stat", pid)) {
		if !strings.Contains(states, state(stat)) {
			return false
		}
	}
	return true
}

// state returns the letter for the state of a process or a thread, from its stat file.
func state(stat string) string {
	if fields := statFields(stat); len(fields) > 0 {
		return fields[0]
	}
	return "X"
}

// statFields returns the fields of a stat file from the state on, see proc(5).
func statFields(stat string) []string {
	// The process name, which is before the state, may contain anything.
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// readMatching returns the contents of all files that match the pattern and still exist.
func readMatching(pattern string) []string {
	var all []string
	names, _ := filepath.Glob(pattern) // the pattern is valid
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			all = append(all, string(text))
		}
	}
	return all
}

// reservePort reserves a port, or any port for 0. It binds the port without listening,
// and allows others to bind it as well. So a server can bind that very port, and
// connections are refused as long as it does not listen. But the system never chooses a
// bound port for a listener or an outgoing connection.
func reservePort(port int) (got int, release func(), err error) {
	if port > 0xffff {
		return 0, nil, syscall.EADDRNOTAVAIL
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	got, err = bind(fd, port)
	if err != nil {
		_ = syscall.Close(fd) // the error of bind matters more
		return 0, nil, err
	}
	return got, func() { _ = syscall.Close(fd) }, nil
}

func bind(fd, port int) (int, error) {
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	// Only now: set earlier, it would allow binding a port that another process has reserved.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}

// sleep sleeps in the kernel, which is exact to some 50 µs. Go's timers may be late by a
// millisecond in a process that has nothing else to do.
func sleep(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&ts, nil) // a signal may end it early
}

// inode returns the number by which the file system knows a file.
func inode(info fs.FileInfo) uint64 {
	st, _ := info.Sys().(*syscall.Stat_t)
	return st.Ino
}
