package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A process is a client process as its parent sees it.
type process struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	steps   *json.Encoder
	answers chan answer // closed when the process has ended
}

// start starts another process of this program as a client.
func start(name string, p assignment) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &process{name: name, cmd: exec.Command(exe), answers: make(chan answer)}
	c.cmd.Env = append(os.Environ(), clientVar+"="+name)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = endWithParent()
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	if err = errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err = c.cmd.Start(); err != nil {
		return nil, err
	}
	c.in, c.steps = in, json.NewEncoder(in)
	go func() {
		defer close(c.answers)
		for decoder := json.NewDecoder(out); ; {
			var a answer
			if decoder.Decode(&a) != nil {
				return
			}
			c.answers <- a
		}
	}()
	if err = c.steps.Encode(p); err != nil {
		c.end()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// do has the client run a step, and returns the answer.
func (c *process) do(ctx context.Context, s step) (answer, error) {
	if err := c.send(s); err != nil {
		return answer{}, err
	}
	return c.result(ctx, s)
}

// send tells the client to run a step. A stopped client runs it when it is resumed.
func (c *process) send(s step) error {
	if err := c.steps.Encode(s); err != nil {
		return fmt.Errorf("%s, %s: %w", c.name, s, err)
	}
	return nil
}

// result waits for the answer to a step.
func (c *process) result(ctx context.Context, s step) (a answer, err error) {
	late := time.NewTimer(2 * stepTimeout) // the client should have given up earlier
	defer late.Stop()
	ok := true
	select {
	case a, ok = <-c.answers:
	case <-late.C:
		err = fmt.Errorf("%s does not answer", c.name)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("%s has ended", c.name)
	case a.Err != "":
		err = errors.New(a.Err)
	}
	if err != nil {
		err = fmt.Errorf("%s, %s: %w", c.name, s, err)
	}
	return a, err
}

// end kills the client, even if it is stopped.
func (c *process) end() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.in.Close()
	for range c.answers { // all answers must be read before Wait closes the pipe
	}
	_ = c.cmd.Wait() // it was killed
}
