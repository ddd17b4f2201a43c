//go:build !linux

package main

import "syscall"

// childAttributes returns the attributes of a server's process: a Ctrl-C does not reach it
// before this process. If this process is killed, the server stays.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
