package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// memoryOf returns the id of the shared memory of the server with this data folder, or "" if the
// server has shut down cleanly. It is in the seventh line of postmaster.pid.
func memoryOf(data string) string {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return ""
	}
	if segment := strings.Fields(lines[6]); len(segment) > 1 {
		return segment[1]
	}
	return ""
}

// removeMemory removes the shared memory that a killed server leaves. A host has room for 4,096 of
// them.
func removeMemory(data string) {
	if id := memoryOf(data); id != "" {
		_ = exec.Command("ipcrm", "-m", id).Run() // else it stays
	}
}

// checkDetached returns an error if processes still use the shared memory of the server with
// this data folder.
func checkDetached(data string) error {
	id := memoryOf(data)
	table, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil || id == "" {
		return err
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // key, shmid, perms, size, cpid, lpid, nattch
		if len(f) > 6 && f[1] == id && f[6] != "0" {
			return fmt.Errorf("%s processes are left", f[6])
		}
	}
	return nil
}
