package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// An agent is a process that locks by order, with a library of another language.
type agent struct {
	mu      sync.Mutex
	in      io.Writer
	last    int
	pending map[int]chan agentResponse
	ended   chan struct{}
}

type agentRequest struct {
	ID    int    `json:"id"`
	Order string `json:"order"`
	Name  string `json:"name,omitempty"`
	TTL   int64  `json:"ttl,omitempty"` // milliseconds
	Wait  bool   `json:"wait,omitempty"`
	Value string `json:"value,omitempty"`
}

type agentResponse struct {
	ID      int    `json:"id"`
	Value   string `json:"value"`
	Refused bool   `json:"refused"`
	Error   string `json:"error"`
}

// startAgent starts a command with the host and the port of a server as its last arguments.
func startAgent(t *testing.T, addr string, cmd *exec.Cmd) *agent {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, host, port)
	in, out := startPiped(t, cmd)
	c := &agent{in: in, pending: make(map[int]chan agentResponse), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a agentResponse
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Errorf("%v said %q: %v", cmd, lines.Bytes(), err)
				continue
			}
			c.mu.Lock()
			c.pending[a.ID] <- a
			delete(c.pending, a.ID)
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() { // the end of its input makes it exit
		in.Close()
		timer := time.AfterFunc(livetest.Patience, func() { cmd.Process.Kill() })
		defer timer.Stop()
		<-c.ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", cmd, err)
		}
	})
	return c
}

// startPiped starts a command, and returns its standard input and output.
func startPiped(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd.Stderr = t.Output()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	return in, out
}

func (c *agent) send(ctx context.Context, o agentRequest) (string, error) {
	answered := make(chan agentResponse, 1)
	c.mu.Lock()
	c.last++
	o.ID = c.last
	c.pending[o.ID] = answered
	text, err := json.Marshal(o)
	if err == nil {
		_, err = c.in.Write(append(text, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case a := <-answered:
		switch {
		case a.Refused:
			return "", errRefused
		case a.Error != "":
			return "", errors.New(a.Error)
		}
		return a.Value, nil
	case <-c.ended:
		return "", errors.New("the agent has ended")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (c *agent) try(name string, ttl time.Duration) (hold, error) {
	return c.acquire(context.Background(), agentRequest{Order: "acquire", Name: name, TTL: ttl.Milliseconds()})
}

func (c *agent) wait(ctx context.Context, name string, ttl time.Duration) (hold, error) {
	return c.acquire(ctx, agentRequest{Order: "acquire", Name: name, TTL: ttl.Milliseconds(), Wait: true})
}

func (c *agent) acquire(ctx context.Context, o agentRequest) (hold, error) {
	value, err := c.send(ctx, o)
	return agentHold{c, value}, err
}

type agentHold struct {
	c *agent
	v string
}

func (h agentHold) value() string { return h.v }

func (h agentHold) extend(ttl time.Duration) error {
	_, err := h.c.send(context.Background(), agentRequest{Order: "extend", Value: h.v, TTL: ttl.Milliseconds()})
	return err
}

func (h agentHold) release() error {
	_, err := h.c.send(context.Background(), agentRequest{Order: "release", Value: h.v})
	return err
}
