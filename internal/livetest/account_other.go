//go:build !linux

package livetest

import "syscall"

// Sys returns nil: servers run on Linux only.
func (a Account) Sys() *syscall.SysProcAttr { return nil }

func (a Account) ids() (uid, gid int, ok bool) { return 0, 0, false }

func (a Account) give(string) error { return nil }
