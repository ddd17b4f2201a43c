//go:build !linux

package sqlitelock

// lockingProcesses returns nil: this system does not tell.
func (s *sidecar) lockingProcesses() []lockingProcess { return nil }
