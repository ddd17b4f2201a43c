//go:build !linux || snib_portable

package sqlitelock

// canNameProcesses says that this system, or this form of byteLocks, does not tell which processes
// keep bytes locked.
const canNameProcesses = false

// lockingProcesses returns nil: this system does not tell.
func (s *sidecar) lockingProcesses() []lockingProcess { return nil }
