package sqlitelock

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
)

// lockingProcesses returns the visible processes that have bytes locked. A process of another
// user, or in another PID namespace, may be missing.
func (s *sidecar) lockingProcesses() []lockingProcess {
	var all []lockingProcess
	files, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return nil
	}
	for _, dir := range files {
		process := filepath.Dir(dir)
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		for _, r := range s.locksOf(process) {
			comm, _ := os.ReadFile(process + "/comm") // only shown to people
			r.holder = driver.Holder{PID: pid, Label: string(bytes.TrimSpace(comm))}
			all = append(all, r)
		}
	}
	return all
}

// locksOf returns the bytes that a process, named by its folder in /proc, has write-locked.
func (s *sidecar) locksOf(process string) (all []lockingProcess) {
	names, err := os.ReadDir(process + "/fd")
	if err != nil {
		return nil
	}
	for _, name := range names {
		fd := process + "/fd/" + name.Name()
		// Compare the name first: stat of the file may block, for example on a
		// network file system.
		if target, err := os.Readlink(fd); err != nil || filepath.Base(target) != filepath.Base(s.path) {
			continue
		}
		if file, err := os.Stat(fd); err != nil || !os.SameFile(file, s.info) {
			continue
		}
		info, err := os.ReadFile(process + "/fdinfo/" + name.Name())
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) {
			if r, ok := parseLock(line); ok {
				all = append(all, r)
			}
		}
	}
	return all
}

// parseLock reads a line of /proc/PID/fdinfo/FD such as "lock: 1: OFDLCK ADVISORY WRITE -1
// 08:01:4711 1048577 1048580".
func parseLock(line string) (r lockingProcess, ok bool) {
	f := strings.Fields(line)
	if len(f) != 9 || f[0] != "lock:" || f[2] != "OFDLCK" || f[4] != "WRITE" {
		return r, false
	}
	// This package never locks to the end of the file.
	n, _ := fmt.Sscan(f[7]+" "+f[8], &r.first, &r.last)
	return r, n == 2
}
