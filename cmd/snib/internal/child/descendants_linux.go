package child

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill the child when we die, in any way. That applies to the
// program itself, not to the processes that it starts. The kernel exempts a program that
// changes its user by a set-uid bit.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// adopt makes us the parent of each process below us whose own parent dies ("child subreaper").
// So whatever the program starts stays below us, in whatever group or session, and when we have
// no child any more, nothing of it is left. It returns the processes that were below us before: a
// shell that became this program may have started some.
func adopt() (before []int) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // all kernels that Go runs on have it
	if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); errors.Is(err, unix.ECHILD) {
		return nil
	}
	for _, p := range descendants(os.Getpid(), nil) {
		before = append(before, p.pid)
	}
	return before
}

// waitTarget is what our one waiter waits for: any child, because who adopts must collect.
func waitTarget(int) int { return -1 }

// Alive reports whether a process that the program started may live, or the program itself.
func (c *Child) Alive() bool {
	select {
	case <-c.childless:
		return false
	default:
	}
	// A look misses a process whose parent ends meanwhile. Then a child of ours, this parent or one
	// above it, was collected during the look, and before the next one misses it, that was counted.
	changes := c.changes.Load()
	for range 2 {
		if len(c.before) == 0 || len(descendants(os.Getpid(), c.before)) > 0 {
			return true
		}
	}
	return c.changes.Load() != changes
}

// outside returns the processes that the program started and that have left its process group.
func (c *Child) outside() []process {
	all := descendants(os.Getpid(), c.before)
	return slices.DeleteFunc(all, func(p process) bool { return p.group == c.pid })
}

// descendants returns the processes below root, also those that have ended and are not collected
// yet, without those of except and what is below them. It may miss one whose parent ends meanwhile.
func descendants(root int, except []int) (found []process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // without /proc, there is only the group
	}
	children := make(map[int][]process)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(except, pid) {
			continue
		}
		text, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // none if it has ended
		// The line is: pid (name) state ppid pgrp session … The name may contain any character.
		var state string // not used
		p := process{pid: pid}
		line := string(text[strings.LastIndexByte(string(text), ')')+1:])
		if n, _ := fmt.Sscan(line, &state, &p.parent, &p.group, &p.session); n == 4 {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			found = append(found, p)
			next = append(next, p.pid)
		}
	}
	return found
}
