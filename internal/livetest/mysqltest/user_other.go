//go:build !linux

package mysqltest

import "syscall"

// Servers run on Linux only.

func unprivileged() *syscall.SysProcAttr { return nil }

func give(string) error { return nil }
