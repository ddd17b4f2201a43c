//go:build !linux

package pgtest

import "syscall"

// Servers run on Linux only.

func unprivileged() *syscall.SysProcAttr { return nil }

func give(string) error { return nil }

func attached(string) error { return nil }
