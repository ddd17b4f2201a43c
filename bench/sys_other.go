//go:build !linux

package main

import "syscall"

// attributes are those of the server's process: a Ctrl-C does not reach it before us. If we are killed, it stays.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
