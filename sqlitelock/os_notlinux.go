//go:build !linux

package sqlitelock

import (
	"errors"
	"io"
)

// lockingProcesses returns nil: this system does not tell.
func (s *sidecar) lockingProcesses() []lockingProcess { return nil }

// signalChange does nothing: the waiters of other processes check once a second.
func signalChange(string) error { return errors.ErrUnsupported }

func watchChanges(string) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }
