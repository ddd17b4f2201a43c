// Package process starts the programs of the lab's clients, each in a process group of its own,
// and stops, resumes and kills them. They die with the process that started them.
package process

import (
	"io"
	"os"
	"os/exec"

	"github.com/sniblock/snib/internal/livetest"
)

// A Process is a program that was started.
type Process struct {
	In  io.WriteCloser // its standard input
	Out io.Reader      // its standard output; it ends when no process writes to it any more

	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a program with pipes for its standard input and output. When the program ends, its
// process group is killed. When we end, the kernel kills the program, even if it is stopped.
func Start(cmd *exec.Cmd) (*Process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = theirs
	p := &Process{In: in, Out: out, cmd: cmd, exited: make(chan struct{})}
	err = livetest.StartTied(cmd, p.exited)
	_ = theirs.Close() // the process has a copy
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // State says the same
		kill(p.PID())  // the rest of its group; the id is not another's so soon
		close(p.exited)
	}()
	return p, nil
}

// PID returns the id of the process, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State describes how the process ended. It must have ended.
func (p *Process) State() string { return p.cmd.ProcessState.String() }

// Succeeded reports whether the process ended with exit code 0. It must have ended.
func (p *Process) Succeeded() bool { return p.cmd.ProcessState.Success() }

// Stop stops the process and its children (SIGSTOP), and returns when they are stopped.
func (p *Process) Stop() error { return livetest.Hang(p.PID()) }

// Resume lets them go on (SIGCONT).
func (p *Process) Resume() error { return livetest.Resume(p.PID()) }

// Kill kills the process group (SIGKILL), even if it is stopped, and waits until the process is
// gone. It does nothing to a process that has ended.
func (p *Process) Kill() {
	select {
	case <-p.exited: // its id may be another's by now
	default:
		kill(p.PID())
	}
	_ = p.In.Close()
	<-p.exited
}
