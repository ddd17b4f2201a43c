//go:build !linux

package process

import (
	"errors"
	"syscall"
)

// Servers are started on Linux only, so no client is started elsewhere.

func attributes() *syscall.SysProcAttr { return nil }

func stop(int) error   { return errors.ErrUnsupported }
func resume(int) error { return errors.ErrUnsupported }
func kill(int)         {}
