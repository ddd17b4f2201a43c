//go:build !linux

package main

import "syscall"

// childAttributes returns the attributes of a server's process. A Ctrl-C reaches only this process,
// which stops the server at its end. If this process is killed, the server goes on.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
