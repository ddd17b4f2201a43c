package livetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// unsupported says why no server can be started here.
const unsupported = ""

// attributes returns a copy of sys with what each of our processes has: it dies with us, and is not in our process group, so
// that a Ctrl-C for the tests does not reach it first.
func attributes(sys *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr := syscall.SysProcAttr{}
	if sys != nil {
		attr = *sys
	}
	attr.Setpgid, attr.Pdeathsig = true, syscall.SIGKILL
	return &attr
}

// hang stops the process and its descendants, and waits until they are.
func hang(pid int) error {
	return poll(nil, func() error {
		var last error
		for _, pid := range tree(pid) {
			if !still(pid) {
				last = fmt.Errorf("process %d still runs", pid)
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					last = err
				}
			}
		}
		return last
	})
}

// resume is the reverse of hang. Parents come last: they find their children running.
func resume(pid int) error {
	var errs []error
	for _, pid := range slices.Backward(tree(pid)) {
		if err := syscall.Kill(pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// kill ends the process and its descendants. The process is stopped first, so that it starts no more, and its dead children
// are not reaped: their ids remain theirs.
func kill(pid int) {
	_ = hang(pid) // what can't be stopped can be killed
	for _, pid := range tree(pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it is gone already, or gets it
	}
}

// quit asks a process to end, also one that hangs.
func quit(pid int, with os.Signal) error {
	return errors.Join(syscall.Kill(pid, with.(syscall.Signal)), resume(pid))
}

// tree returns the process and its descendants, parents first. The list is complete if they are stopped.
func tree(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		for _, list := range read(fmt.Sprintf("/proc/%d/task/*/children", all[i])) {
			for _, field := range strings.Fields(list) {
				if child, err := strconv.Atoi(field); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// still reports whether no thread of the process does anything: all are stopped, dead or gone.
func still(pid int) bool {
	for _, stat := range read(fmt.Sprintf("/proc/%d/task/*/stat", pid)) {
		if !strings.Contains("TtZX", state(stat)) {
			return false
		}
	}
	return true
}

// state returns the letter for the state of a process or a thread, from its stat file, see proc(5).
func state(stat string) string {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name may contain anything
	if len(fields) == 0 {
		return "X"
	}
	return fields[0]
}

// read returns the contents of all files that match the pattern and are still there.
func read(pattern string) []string {
	var all []string
	names, _ := filepath.Glob(pattern) // the pattern is right
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			all = append(all, string(text))
		}
	}
	return all
}

// hold keeps a port, or any for 0, from being given to others. It binds without listening, and allows others to bind as
// well: a server can, which asks for that very port, and connections are refused as long as it does not listen. But the
// system, when it chooses a port, for a listener or for an outgoing connection, chooses none that is bound.
func hold(port int) (got int, release func(), err error) {
	if port > 0xffff {
		return 0, nil, syscall.EADDRNOTAVAIL
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	got, err = bind(fd, port)
	if err != nil {
		_ = syscall.Close(fd) // the error is in hand
		return 0, nil, err
	}
	return got, func() { _ = syscall.Close(fd) }, nil
}

func bind(fd, port int) (int, error) {
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	// Only now: before, it would allow us to bind to a port that somebody else holds.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}
