package main

import (
	"errors"
	"fmt"
	"syscall"
)

// endWithParent returns attributes that make the kernel kill a client when this
// process dies, even if the client is stopped.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stop sends the client SIGSTOP, and returns when it is stopped.
func (c *process) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("%s has ended instead of being stopped", c.name)
	}
	return err
}

// resume sends the client SIGCONT.
func (c *process) resume() error { return c.cmd.Process.Signal(syscall.SIGCONT) }
