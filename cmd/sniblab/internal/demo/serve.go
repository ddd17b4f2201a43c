package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// clientVar is the environment variable that makes a process of the program a client.
const clientVar = "SNIB_LAB_CLIENT"

// Main does the work of a client and ends the process, if the process was started for that. A
// program that calls [Run] calls Main first, as does TestMain of a test of it.
func Main() {
	if os.Getenv(clientVar) == "" {
		return
	}
	os.Exit(serve(os.Stdin, os.Stdout)) //nolint:forbidigo // the process is a client and nothing else
}

// A request tells a client what to do. The first message to a client is a [pattern.Spec].
type request struct {
	Op     string
	Stop   string        `json:",omitempty"` // stop before the first command that begins with it
	Within time.Duration `json:",omitempty"` // opAcquire: give up then; 0: never
}

// Operations.
const (
	opTry     = "try"
	opAcquire = "acquire"
	opWork    = "work"
	opRelease = "release"
	opGoOn    = "go on" // after a step, or a stop
)

// A report is what a client says.
type report struct {
	Kind   kind
	Op     string        `json:",omitempty"` // done: which operation
	Text   string        `json:",omitempty"` // step, stopped: the begin of the next one; lost: why
	Answer string        `json:",omitempty"` // step: the server's
	Held   bool          `json:",omitempty"` // done: the client holds the lock
	Thrown bool          `json:",omitempty"` // done: the work was thrown away
	Tries  int           `json:",omitempty"` // done
	Took   time.Duration `json:",omitempty"` // done
	Err    string        `json:",omitempty"` // done: any error
}

type kind string

const (
	step    kind = "step"    // a command was answered; the client waits for opGoOn
	stopped kind = "stopped" // a command is not sent before opGoOn
	waiting kind = "waiting" // opAcquire goes on
	done    kind = "done"    // the operation has ended
	renewed kind = "renewed" // the lease was renewed
	lost    kind = "lost"    // the hold has ended
)

// retryInterval is the pause between two tries of a client that waits.
const retryInterval = 50 * time.Millisecond

// A worker is the process of a client. It implements [pattern.Tracer].
type worker struct {
	requests *json.Decoder
	client   *pattern.Client

	mu  sync.Mutex // for out
	out *json.Encoder

	stop    string   // as in the request
	waiting bool     // the steps of a try are reported only if it succeeds
	steps   []report // of the current try
}

// serve runs one operation after the other, until there is none, and returns the exit code.
func serve(in io.Reader, out io.Writer) int {
	w := &worker{requests: json.NewDecoder(in), out: json.NewEncoder(out)}
	var spec pattern.Spec
	if w.requests.Decode(&spec) != nil {
		return 1
	}
	ctx := context.Background()
	var err error
	w.client, err = pattern.Open(ctx, spec, w)
	w.send(report{Kind: done, Err: text(err)})
	if err != nil {
		return 1
	}
	defer w.client.Close()
	for {
		var r request
		if w.requests.Decode(&r) != nil { // no more requests
			return 0
		}
		w.stop = r.Stop
		began := time.Now()
		held, tries, err := w.run(ctx, r)
		thrown := errors.Is(err, pattern.ErrRefused)
		if thrown {
			err = nil
		}
		w.send(report{Kind: done, Op: r.Op, Held: held, Thrown: thrown, Tries: tries, Took: time.Since(began),
			Err: text(err)})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// run runs an operation.
func (w *worker) run(ctx context.Context, r request) (held bool, tries int, err error) {
	switch r.Op {
	case opTry:
		held, err = w.client.Try(ctx)
	case opAcquire:
		return w.acquire(ctx, r.Within)
	case opWork:
		stock, err := w.client.Read(ctx)
		if err == nil {
			err = w.client.Write(ctx, stock-1)
		}
		return false, 0, err
	case opRelease:
		err = w.client.Release(ctx)
	}
	return held, tries, err
}

// acquire waits for the lock. Only its first try is reported, and the one that succeeds.
func (w *worker) acquire(ctx context.Context, within time.Duration) (held bool, tries int, err error) {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	held, err = w.client.Try(context.WithoutCancel(ctx)) // a try that is cut off may have taken the lock
	tries = 1
	if held || err != nil {
		return held, tries, err
	}
	w.send(report{Kind: waiting})
	if w.client.Wait != nil {
		err = w.client.Wait(ctx)
		if err != nil && ctx.Err() != nil {
			return false, tries, nil // it gives up
		}
		return err == nil, tries, err
	}
	w.waiting = true
	defer func() { w.waiting = false }()
	for !held && err == nil {
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return false, tries, nil
		}
		w.steps = nil
		held, err = w.client.Try(context.WithoutCancel(ctx)) // likewise
		tries++
	}
	for _, r := range w.steps {
		w.await(r)
	}
	return held, tries, err
}

func (w *worker) send(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out.Encode(r) != nil {
		os.Exit(1) //nolint:forbidigo // nobody is left who would tell us what to do
	}
}

// await sends a report and waits for opGoOn.
func (w *worker) await(r report) {
	w.send(r)
	if w.requests.Decode(new(request)) != nil {
		os.Exit(1) //nolint:forbidigo // likewise
	}
	if r.Kind == stopped {
		w.stop = ""
	}
}

// Before implements [pattern.Tracer].
func (w *worker) Before(command string) {
	if w.stop != "" && strings.HasPrefix(command, w.stop) {
		w.await(report{Kind: stopped, Text: w.stop})
	}
}

// After implements [pattern.Tracer].
func (w *worker) After(command, answer string) {
	r := report{Kind: step, Text: command, Answer: answer}
	if w.waiting {
		w.steps = append(w.steps, r)
		return
	}
	w.await(r)
}

// Renewed implements [pattern.Tracer].
func (w *worker) Renewed() { w.send(report{Kind: renewed}) }

// Lost implements [pattern.Tracer].
func (w *worker) Lost(why string) { w.send(report{Kind: lost, Text: why}) }
