package main

import "syscall"

// attributes are those of the server's process: it dies with us, and a Ctrl-C does not reach it before us.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
