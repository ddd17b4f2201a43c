package child

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// dieWithParent has the child killed when we are, by whatever means. It reaches the program itself and not what that
// started. A program that changes its user by a set-uid bit is let off by the kernel.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// onlyDead reports whether all processes of the group pgrp have died already. In a container whose first process takes
// no note of orphans they stay visible for ever.
func onlyDead(pgrp int) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return false // we can't know
	}
	group := []byte(strconv.Itoa(pgrp))
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // gone meanwhile
		}
		// pid (name) state ppid pgrp …, and the name may hold anything.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) > 2 && bytes.Equal(fields[2], group) && fields[0][0] != 'Z' && fields[0][0] != 'X' {
			return false
		}
	}
	return true
}
