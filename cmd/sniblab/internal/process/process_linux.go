package process

import (
	"errors"
	"fmt"
	"syscall"
)

func stop(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	}
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("it has ended: %v", status)
	}
	return err
}

func resume(pid int) error { return syscall.Kill(-pid, syscall.SIGCONT) }

func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // it may just have ended
