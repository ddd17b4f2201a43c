package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the child when we die, in any way. That applies to the
// program itself, not to the processes that it starts. The kernel exempts a program that
// changes its user by a set-uid bit.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// allDead reports whether all processes of the group pgrp are dead. In a container whose first
// process does not collect orphans, dead ones stay visible forever.
func allDead(pgrp int) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return false // unknown
	}
	group := []byte(strconv.Itoa(pgrp))
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The line is: pid (name) state ppid pgrp … The name may contain any character.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) > 2 && bytes.Equal(fields[2], group) && fields[0][0] != 'Z' && fields[0][0] != 'X' {
			return false
		}
	}
	return true
}
