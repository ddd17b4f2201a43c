package main

import "syscall"

// childAttributes returns the attributes of a server's process: it dies with this
// process, and a Ctrl-C does not reach it first.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
