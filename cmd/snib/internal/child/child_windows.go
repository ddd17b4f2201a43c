package child

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Child is a running program. One goroutine may call its methods; another one
// may receive from Events.
type Child struct {
	// The id of the process, and of its process group. The process stays open for as long as we
	// run, so that no other process gets this id.
	pid     int
	process windows.Handle
	job     job
	events  chan Event
}

// Start runs p in a job object and a process group of its own.
func Start(p Program) (*Child, error) {
	if len(p.Keep) > 0 {
		return nil, fmt.Errorf("start a program that inherits files: %w", errors.ErrUnsupported)
	}
	j, err := newJob()
	if err != nil {
		return nil, fmt.Errorf("make a job object: %w", err)
	}
	// The program begins suspended: what it started before it is in the job would not be in it.
	pid, handle, err := syscall.StartProcess(p.Path, p.Args, &syscall.ProcAttr{
		Env:   p.Env,
		Files: []uintptr{uintptr(syscall.Stdin), uintptr(syscall.Stdout), uintptr(syscall.Stderr)},
		Sys:   &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP},
	})
	if err != nil {
		j.close()
		return nil, err
	}
	c := &Child{pid: pid, process: windows.Handle(handle), job: j, events: make(chan Event, 1)}
	if err = j.add(c.process); err == nil {
		err = resume(pid)
	}
	if err != nil {
		_ = windows.TerminateProcess(c.process, killedCode) // it has run nothing yet
		_ = windows.CloseHandle(c.process)
		j.close()
		return nil, fmt.Errorf("put the program into a job object: %w", err)
	}
	go c.wait()
	return c, nil
}

// resume lets a process go on that was started suspended.
func resume(pid int) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot) //nolint:errcheck // nothing was written
	resumed := false
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != uint32(pid) {
			continue
		}
		if err := resumeThread(entry.ThreadID); err != nil {
			return err
		}
		resumed = true
	}
	switch {
	case !errors.Is(err, windows.ERROR_NO_MORE_FILES):
		return err
	case !resumed:
		return fmt.Errorf("process %d has no thread", pid)
	}
	return nil
}

func resumeThread(id uint32) error {
	thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, id)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(thread) //nolint:errcheck // nothing was written
	_, err = windows.ResumeThread(thread)
	return err
}

// wait reports the end of the program.
func (c *Child) wait() {
	var e Event
	_, e.Err = windows.WaitForSingleObject(c.process, windows.INFINITE)
	if e.Err == nil {
		e.Err = windows.GetExitCodeProcess(c.process, &e.Status.ExitCode)
	}
	if e.Err == nil {
		// As on Unix, the lock no longer guards what the program left in the background. If
		// this fails, these processes end with us.
		_ = c.job.spare()
	}
	c.events <- e
}

// Signal kills the whole job if s is SIGKILL. Windows has no signals, and one way to ask a program
// to end: for any other s, the processes of the program's group that are on our console get
// Ctrl-Break. They would ignore Ctrl-C, because the group is not ours.
func (c *Child) Signal(s syscall.Signal) {
	if s == syscall.SIGKILL {
		_ = c.job.kill() // Alive shows if it failed
		return
	}
	// It fails if we have no console. Then the program is not asked, and killed after its grace.
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.pid))
}

// Terminate does nothing: Signal has asked the whole job.
func (c *Child) Terminate() {}

// Alive reports whether a process of the job lives, even after the program itself has ended.
func (c *Child) Alive() bool {
	n, err := c.job.active()
	return n > 0 || err != nil
}

// The rest is about stopped programs, and about who may read from a terminal. Windows stops no
// program, and lets all programs on a console read from it.

// OnTerminal returns false: no key stops the program, and none ends it by a signal.
func (c *Child) OnTerminal() bool { return false }

// Lent returns false: Ctrl-C reaches us and not the program.
func (c *Child) Lent() bool { return false }

// Lend returns false: the program needs no permission to read from the console.
func (c *Child) Lend() bool { return false }

// TakeBack does nothing, because nothing is ever lent.
func (c *Child) TakeBack() {}

// Continue does nothing, because the program is never stopped.
func (c *Child) Continue(bool) {}
