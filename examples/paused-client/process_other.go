//go:build !linux

package main

import (
	"errors"
	"fmt"
	"syscall"
)

func endWithParent() *syscall.SysProcAttr { return nil }

func (c *process) stop() error {
	return fmt.Errorf("stop %s: %w: this example runs on Linux only", c.name, errors.ErrUnsupported)
}

func (c *process) resume() error { return errors.ErrUnsupported }
