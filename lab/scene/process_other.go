//go:build !linux

package scene

import (
	"errors"
	"os"
	"syscall"
)

// Servers are started on Linux only, so no client is started elsewhere.

func clientAttributes() *syscall.SysProcAttr { return nil }

func stopProcess(*os.Process) error   { return errors.ErrUnsupported }
func resumeProcess(*os.Process) error { return errors.ErrUnsupported }
