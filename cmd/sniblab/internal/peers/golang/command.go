package golang

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/target"
)

// A commandLock is a lock that a command holds while it runs.
type commandLock struct {
	command func(wait time.Duration) *exec.Cmd
	denied  int            // the exit code that says that the wait is over; 0 if there is none
	release syscall.Signal // what ends the command, or 0 if the end of its input does
}

// acquire is a [target.Locker]. The command has the lock when it writes its first line.
func (l commandLock) acquire(_ context.Context, wait time.Duration) (*target.Hold, error) {
	cmd := l.command(wait)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return nil, err
	}
	granted, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewReader(out)
		if _, err := lines.ReadString('\n'); err == nil {
			close(granted)
			_, _ = io.Copy(io.Discard, lines)
		}
		_ = cmd.Wait() // its state says the same
	}()
	end := func() {
		_ = in.Close()
		if l.release != 0 {
			_ = cmd.Process.Signal(l.release) // it may have ended
		}
		<-ended
	}
	select {
	case <-granted:
	case <-ended:
		if l.denied != 0 && cmd.ProcessState.ExitCode() == l.denied {
			return nil, target.ErrDenied
		}
		return nil, fmt.Errorf("%s: %s", filepath.Base(cmd.Path), cmd.ProcessState)
	case <-time.After(wait + time.Second): // flock ends by itself before
		end()
		return nil, target.ErrDenied
	}
	return &target.Hold{Lost: ended, Release: func(context.Context) error { end(); return nil }}, nil
}

// openFlock has the command flock of util-linux: its command says that it runs, and ends with its
// input.
func openFlock(_ context.Context, m target.Message) (target.Locker, error) {
	flock, err := exec.LookPath("flock")
	if err != nil {
		return nil, err
	}
	const denied = 75
	return commandLock{denied: denied, command: func(wait time.Duration) *exec.Cmd {
		seconds := strconv.FormatFloat(wait.Seconds(), 'f', 3, 64)
		return exec.Command(flock, "-w", seconds, "-E", strconv.Itoa(denied), m.URL, "sh", "-c", "echo held; exec cat")
	}}.acquire, nil
}

// openEtcdctl has etcdctl, which was built beside this program. It prints a key when it has the
// lock, and releases it when it is interrupted.
func openEtcdctl(_ context.Context, m target.Message) (target.Locker, error) {
	etcdctl, err := exec.LookPath("etcdctl")
	if err != nil {
		return nil, err
	}
	return commandLock{release: syscall.SIGINT, command: func(time.Duration) *exec.Cmd {
		return exec.Command(etcdctl, "--endpoints", strings.TrimPrefix(m.URL, "etcd://"), "lock", "--ttl", strconv.Itoa(int(ttl(m)/time.Second)), "/"+m.Name)
	}}.acquire, nil
}
