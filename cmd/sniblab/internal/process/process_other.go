//go:build !linux

package process

import "errors"

// Servers are started on Linux only, so no client is started elsewhere.

func stop(int) error   { return errors.ErrUnsupported }
func resume(int) error { return errors.ErrUnsupported }
func kill(int)         {}
