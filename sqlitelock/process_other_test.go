//go:build darwin || windows

package sqlitelock

import (
	"context"
	"errors"
)

// stopAtWork is a job of tests on Linux only.
func (j job) stopAtWork(context.Context, *Driver) error { return errors.ErrUnsupported }
