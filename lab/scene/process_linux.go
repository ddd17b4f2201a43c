package scene

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// clientAttributes keeps Ctrl-C from clients: their director ends them. The kernel kills them when
// the director dies, even if they are stopped.
func clientAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopProcess returns when the process is stopped.
func stopProcess(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err == nil && !status.Stopped() {
		err = fmt.Errorf("it has ended: %v", status)
	}
	return err
}

func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
