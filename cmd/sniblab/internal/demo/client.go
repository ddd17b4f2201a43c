package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/cmd/sniblab/internal/process"
)

// A Client is a process of a client, as the director sees it.
type Client struct {
	Name string

	director *Director
	process  *process.Process
	steps    *json.Encoder
	replies  chan report // to operations; closed when the process has ended

	op       string // that is under way, or ""
	held     bool   // what the last operation to lock said
	thrown   bool   // what the last operation to work said
	believes bool   // that it holds the lock; guarded by director.mu
	lost     bool   // a hold of snib, before its release; guarded by director.mu
	paused   bool   // guarded by director.mu
	mayLose  bool   // its hold, because it was paused; guarded by director.mu
	renewals chan struct{}
}

// An Option changes an operation.
type Option func(*request)

// Before stops an operation before the client sends the first command that begins with the text.
// An operation without such a command is not stopped.
func Before(command string) Option { return func(r *request) { r.Stop = command } }

// GiveUpAfter makes Acquire give up.
func GiveUpAfter(d time.Duration) Option { return func(r *request) { r.Within = d } }

// Try tries once to get the lock, and reports whether the client holds it.
func (c *Client) Try(opts ...Option) bool { return c.do(opTry, opts...) && c.held }

// Acquire begins to wait for the lock. It returns when the client holds it, stops, or has tried
// once in vain; [Client.Finish] waits for the end. Acquire reports whether the client holds the
// lock.
func (c *Client) Acquire(opts ...Option) bool { return c.do(opAcquire, opts...) && c.held }

// Work sells one: the client reads the stock, and writes it less one. It reports whether
// that is done.
func (c *Client) Work(opts ...Option) bool { return c.do(opWork, opts...) }

// Refused reports whether the client has thrown its last work away, because it had lost the
// lock, or because the stock refused its token.
func (c *Client) Refused() bool { return c.thrown }

// Release frees the lock, and reports whether that is done.
func (c *Client) Release(opts ...Option) bool {
	c.believe(false) // it has left the critical section, whatever becomes of the release
	return c.do(opRelease, opts...)
}

// GoOn lets a client go on that stopped. It returns when the operation has ended or, of Acquire,
// waits.
func (c *Client) GoOn() {
	c.send(request{Op: opGoOn})
	c.reply()
}

// Finish waits until Acquire has ended, and reports whether the client holds the lock.
func (c *Client) Finish() bool {
	for c.op != "" {
		c.reply()
	}
	return c.held
}

// Holds reports whether the client believes that it holds the lock. A client believes nothing
// while it is paused.
func (c *Client) Holds() bool {
	c.director.mu.Lock()
	defer c.director.mu.Unlock()
	return c.holds()
}

// holds is Holds for callers that hold director.mu.
func (c *Client) holds() bool { return c.believes && !c.paused }

// AwaitLoss waits until a client of snib has learnt that it lost the lock.
func (c *Client) AwaitLoss() {
	c.director.Await(c.Name+" to learn that its lock is lost", func() bool {
		c.director.mu.Lock()
		defer c.director.mu.Unlock()
		return c.lost
	})
}

// Renewal waits until the lease was renewed once more.
func (c *Client) Renewal() {
	select {
	case <-c.renewals:
	case <-time.After(patience):
		failf("%s does not renew its lease", c.Name)
	case <-c.director.ctx.Done():
		check(c.Name, context.Cause(c.director.ctx))
	}
}

// Kill ends the process as a crash would (SIGKILL).
func (c *Client) Kill() {
	c.process.Kill()
	c.op = ""
	c.believe(false)
	c.tell("† is killed (kill -9)")
}

// Pause stops the process wherever it is, as a long garbage collection or a suspended virtual
// machine would (SIGSTOP).
func (c *Client) Pause() {
	c.pause(true)
	check("stop "+c.Name, c.process.Stop())
	c.tell("‖ is stopped (SIGSTOP)")
}

// Resume lets a process run again that was paused (SIGCONT).
func (c *Client) Resume() {
	c.pause(false)
	c.tell("▶ runs again (SIGCONT)")
	check("resume "+c.Name, c.process.Resume())
}

// pause records whether the client is paused.
func (c *Client) pause(paused bool) {
	c.director.mu.Lock()
	defer c.director.mu.Unlock()
	c.paused, c.mayLose = paused, true
	c.countTogether()
}

// do begins an operation, and waits until it has ended, stops or waits. It reports whether it has
// ended.
func (c *Client) do(op string, opts ...Option) bool {
	if c.op != "" {
		failf("%s can't %s: it is still at %s", c.Name, op, c.op)
	}
	r := request{Op: op}
	for _, o := range opts {
		o(&r)
	}
	c.op = op
	c.send(r)
	c.reply()
	return c.op == ""
}

func (c *Client) send(r request) { check("tell "+c.Name, c.steps.Encode(r)) }

// reply waits until the operation has ended, stops or waits.
func (c *Client) reply() {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r, ok := <-c.replies:
		switch {
		case !ok:
			failf("%s has ended", c.Name)
		case r.Err != "":
			failf("%s, %s: %s", c.Name, c.op, r.Err)
		case r.Kind == done:
			c.op = ""
			c.held = r.Held
			if r.Op == opWork {
				c.thrown = r.Thrown
			}
		}
	case <-late.C:
		failf("%s does not get on with %s", c.Name, c.op)
	case <-c.director.ctx.Done():
		check(c.Name, context.Cause(c.director.ctx))
	}
}

// startClient starts the process of a client. Its first reply says whether it has connected.
func startClient(s *Director, spec pattern.Spec) (*Client, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Args = os.Args[:1] // a program may look at its name
	cmd.Env = append(os.Environ(), clientVar+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	c := &Client{
		Name: spec.Client, director: s, process: p, steps: json.NewEncoder(p.In), op: "connecting",
		replies: make(chan report, 10), renewals: make(chan struct{}, 1000),
	}
	go c.read(p.Out)
	return c, c.steps.Encode(spec)
}

// read handles the reports of the process until it has ended.
func (c *Client) read(out io.Reader) {
	defer close(c.replies)
	for decoder := json.NewDecoder(out); ; {
		var r report
		if decoder.Decode(&r) != nil {
			return
		}
		c.receive(r)
	}
}

// receive handles a report of the client, while the director may wait for another one.
func (c *Client) receive(r report) {
	switch r.Kind {
	case step:
		c.tell("%s →\u00a0%s", r.Text, r.Answer)
		_ = c.steps.Encode(request{Op: opGoOn}) // unless it was killed meanwhile
		return
	case renewed:
		c.tell("renews its lease")
		c.renewals <- struct{}{}
		return
	case lost:
		c.director.mu.Lock()
		c.lost = true
		c.director.mu.Unlock()
		c.believe(false)
		c.tell("learns that its lock is lost: %s", r.Text)
		return
	case stopped:
		c.tell("… is slow, before %s", r.Text)
	case waiting:
		c.tell("waits for the lock")
	case done:
		c.conclude(r)
	}
	c.replies <- r
}

// conclude shows what the end of an operation means.
func (c *Client) conclude(r report) {
	switch {
	case r.Err != "":
	case r.Op == opTry || r.Op == opAcquire:
		switch {
		case r.Held:
			c.believe(true)
			c.tell("HOLDS the lock")
		case r.Op == opTry:
			c.tell("does not get the lock")
		default:
			c.tell("GIVES UP, after %d tries in %s", r.Tries, shortly(r.Took))
		}
	case r.Thrown:
		c.tell("throws its work away")
	case r.Op == opWork:
		c.director.count(&c.director.sold)
	case r.Op == opRelease:
		c.tell("is done")
	}
}

// tell shows a line in the client's lane.
func (c *Client) tell(format string, args ...any) {
	c.director.mu.Lock()
	defer c.director.mu.Unlock()
	c.director.say(c.Name, format, args...)
}

// believe records whether the client believes from now on that it holds the lock.
func (c *Client) believe(holds bool) {
	c.director.mu.Lock()
	defer c.director.mu.Unlock()
	c.believes = holds
	c.countTogether()
}

// countTogether counts with whom the client now believes to hold the lock. The caller holds
// director.mu.
func (c *Client) countTogether() {
	if !c.holds() {
		return
	}
	for _, other := range c.director.clients {
		if other.holds() && other != c {
			c.director.damage.Together++
		}
	}
}

// shortly formats a duration for people.
func shortly(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + "\u00a0s"
}
