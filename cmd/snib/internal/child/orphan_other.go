//go:build unix && !linux

package child

import "os"

// adoptsOrphans reports whether a process whose parent dies becomes our child.
func adoptsOrphans() bool { return os.Getpid() == 1 }
