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

// A process is a client, as who tells it its steps sees it.
type process struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	steps   *json.Encoder
	answers chan answer // closed when it has ended
}

// start starts this program once more, as a client.
func start(name string, p part) (*process, error) {
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

// do has the client take a step, and returns what came of it.
func (c *process) do(ctx context.Context, s step) (answer, error) {
	if err := c.tell(s); err != nil {
		return answer{}, err
	}
	return c.result(ctx, s)
}

// tell tells the client to take a step. If it is stopped, it will when it goes on.
func (c *process) tell(s step) error {
	if err := c.steps.Encode(s); err != nil {
		return fmt.Errorf("%s, %s: %w", c.name, s, err)
	}
	return nil
}

// result waits for what came of a step.
func (c *process) result(ctx context.Context, s step) (a answer, err error) {
	late := time.NewTimer(2 * patience) // it should have given up itself
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

// end ends the client, stopped or not.
func (c *process) end() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.in.Close()
	for range c.answers { // they must be read before Wait closes the pipe
	}
	_ = c.cmd.Wait() // it was killed
}
