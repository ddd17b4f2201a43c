package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkDetached returns an error if processes still use the shared memory of the server with
// this data folder. The memory's id is in the seventh line of postmaster.pid.
func checkDetached(data string) error {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return nil // the server has shut down cleanly
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return nil
	}
	segment := strings.Fields(lines[6])
	table, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil || len(segment) < 2 {
		return err
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // key, shmid, perms, size, cpid, lpid, nattch
		if len(f) > 6 && f[1] == segment[1] && f[6] != "0" {
			return fmt.Errorf("%s processes are left", f[6])
		}
	}
	return nil
}
