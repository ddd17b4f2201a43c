package target

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/process"
)

// An Error is the error of a target that does not keep to the protocol: it ended by itself,
// said something else, or did not get ready.
type Error struct {
	Program string
	Err     error
	Stderr  string // the end of its standard error, or ""
}

func (e *Error) Error() string {
	text := fmt.Sprintf("target %s: %v", e.Program, e.Err)
	if e.Stderr != "" {
		text += "; its standard error ends with: " + e.Stderr
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// A Process is the process of a target, as the judge sees it. It is safe for concurrent use.
type Process struct {
	program string
	p       *process.Process
	stderr  tail
	on      func(Message)
	failed  chan struct{} // closed when err is set
	ready   chan struct{}
	ended   chan struct{} // closed when the process has ended and its messages are read

	mu     sync.Mutex
	phases map[int64]phase
	isUp   bool  // it has said that it is ready
	killed bool  // by us
	err    error // why it failed
}

// readyTimeout is how long a target may take to connect.
const readyTimeout = 30 * time.Second

// Start starts a program with env in addition to our own environment, greets it, and waits
// until it is ready. From then on it calls on with each message, one at a time and as soon as
// it arrives. If the program fails, the error is an [*Error].
func Start(ctx context.Context, command, env []string, hello Message, on func(Message)) (*Process, error) {
	c := &Process{
		program: strings.Join(command, " "), on: on, phases: make(map[int64]phase),
		failed: make(chan struct{}), ready: make(chan struct{}), ended: make(chan struct{}),
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	cmd.Stderr = &c.stderr
	cmd.WaitDelay = time.Second // its children may keep standard error open
	var err error
	if c.p, err = process.Start(cmd); err != nil {
		return nil, &Error{Program: c.program, Err: err}
	}
	go c.read()
	hello.Type = Hello
	c.Send(hello)
	late := time.NewTimer(readyTimeout)
	defer late.Stop()
	select {
	case <-c.ready:
		return c, nil
	case <-c.failed:
	case <-late.C:
		c.fail(fmt.Errorf(`it did not send {"type":"ready"} within %v; does it flush its standard output after each line?`, readyTimeout))
	case <-ctx.Done():
		c.Kill()
		return nil, context.Cause(ctx)
	}
	c.Kill()
	return nil, c.Err()
}

// Send sends a message. A target that has ended, or does not read, is no error here: it does
// not answer.
func (c *Process) Send(m Message) {
	c.mu.Lock()
	switch m.Type {
	case Acquire:
		c.phases[m.ID] = asked
	case Check:
		if c.phases[m.ID] == holding {
			c.phases[m.ID] = checking
		}
	case Release:
		c.phases[m.ID] = releasing
	}
	c.mu.Unlock()
	line, err := json.Marshal(m)
	if err == nil {
		_, _ = c.p.In.Write(append(line, '\n'))
	}
}

// Failed returns a channel that is closed when the target has failed. [Process.Err] says how.
func (c *Process) Failed() <-chan struct{} { return c.failed }

// Err returns why the target has failed, as an [*Error], or nil.
func (c *Process) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stop stops the target and its children (SIGSTOP).
func (c *Process) Stop() error { return c.p.Stop() }

// Resume lets it go on (SIGCONT).
func (c *Process) Resume() error { return c.p.Resume() }

// Kill kills the target and its children (SIGKILL), and returns when it is gone and its last
// message was handled.
func (c *Process) Kill() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.p.Kill()
	// A child that has left the group may keep the pipe open.
	select {
	case <-c.ended:
	case <-time.After(time.Second):
	}
}

// fail records the first error.
func (c *Process) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.killed {
		c.err = &Error{c.program, err, c.stderr.String()}
		close(c.failed)
	}
}

// maxLine is the greatest length of a message.
const maxLine = 64 << 10

// read handles messages until the output of the process ends.
func (c *Process) read() {
	defer close(c.ended)
	lines := bufio.NewScanner(c.p.Out)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if err := c.receive(lines.Bytes()); err != nil {
			c.fail(fmt.Errorf("line %d of its output, %.120q: %w", n, lines.Text(), err))
			go c.p.Kill()
			_, _ = io.Copy(io.Discard, c.p.Out)
			return
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		c.fail(fmt.Errorf("a line of its output is longer than %d bytes", maxLine))
		go c.p.Kill()
		return
	}
	<-c.p.Exited()
	c.fail(fmt.Errorf("it ended by itself: %s", c.p.State()))
}

// receive handles one line.
func (c *Process) receive(line []byte) error {
	var m Message
	if err := json.Unmarshal(line, &m); err != nil {
		return describe(err)
	}
	c.mu.Lock()
	isUp := c.isUp
	c.isUp = isUp || m.Type == Ready
	var err error
	if m.ID != 0 {
		c.phases[m.ID], err = c.phases[m.ID].follow(m)
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case m.Type == Ready && !isUp:
		close(c.ready)
	case m.Type == Failed && m.ID == 0:
		return fmt.Errorf("it gives up: %s", m.Error)
	case !isUp:
		return fmt.Errorf("the first message must be %q", Ready)
	case m.ID == 0:
		return errors.New(`it has no "id"; repeat the id of the judge's message`)
	default:
		c.on(m)
	}
	return nil
}

// describe says what is wrong with a line that is no message.
func describe(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || wrong.Field == "" {
		return errors.New("it is no message, which is a JSON object")
	}
	want := "a string"
	switch wrong.Type.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int64:
		want = "an integer"
	case reflect.Uint64:
		want = "a positive integer"
	}
	got, _, _ := strings.Cut(wrong.Value, " ") // a number follows its type
	return fmt.Errorf("its field %q must be %s, and has the type %s", wrong.Field, want, got)
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 500
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.Join(bytes.Fields(t.text), []byte(" ")))
}
