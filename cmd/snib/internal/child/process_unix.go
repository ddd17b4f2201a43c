//go:build unix

package child

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A Process is a running process that we did not start.
type Process struct {
	pid   int
	ended chan struct{}
}

// Watch returns the process pid. If there is none, the error is [syscall.ESRCH].
func Watch(pid int) (*Process, error) {
	wait, err := waiter(pid)
	if err != nil {
		return nil, err
	}
	p := &Process{pid: pid, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		wait()
	}()
	return p, nil
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Terminate sends TERM to the process, to the rest of its process group if it leads one, and on
// Linux to what it started. It does nothing after the end of the process.
func (p *Process) Terminate() {
	select {
	case <-p.ended: // its id may be that of another process by now
		return
	default:
	}
	target := p.pid
	if group, err := syscall.Getpgid(p.pid); err == nil && group == p.pid {
		target = -p.pid
	}
	below := descendants(p.pid, []int{os.Getpid()})
	_ = syscall.Kill(target, syscall.SIGTERM) // the only likely error is that it has ended
	for _, d := range below {
		if d.group != -target {
			_ = syscall.Kill(d.pid, syscall.SIGTERM)
		}
	}
}

// pollWaiter returns a function that returns at most a second after the process pid has ended.
func pollWaiter(pid int) (func(), error) {
	if pid <= 0 || Gone(pid) {
		return nil, syscall.ESRCH
	}
	return func() {
		for !Gone(pid) {
			time.Sleep(time.Second)
		}
	}, nil
}

// Detach lets the program that cmd is about to start outlive the terminal and its signals. It gets
// none of the files that our caller has left open for us: it would keep a lock of flock taken.
func Detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	open, _ := os.ReadDir("/dev/fd") // where there is none, the files stay open
	for _, f := range open {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
