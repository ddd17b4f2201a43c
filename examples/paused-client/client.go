package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/fence"
)

const (
	// ttl is the TTL of the lock: how long B waits for it when A is stopped.
	ttl = 2 * time.Second

	// stepTimeout bounds each step, in case a store is unavailable.
	stepTimeout = 30 * time.Second

	clientVar = "PAUSED_CLIENT" // set in the processes of clients
	lockName  = "paused-client/account"
)

func isClient() bool { return os.Getenv(clientVar) != "" }

// An assignment is the first message to a client. It is sent through the pipe,
// because the URL may contain a password.
type assignment struct {
	Place   location
	Guard   guard
	Deposit int
}

// A step is a command to a client.
type step string

const (
	acquire step = "acquire" // the lock
	open    step = "open"    // the account, and claim it if the guard is claimed
	read    step = "read"    // the balance, and check whether the lock is still held
	// Write the balance that was read plus the deposit, without checking the lock again.
	write     step = "write"
	awaitLoss step = "learn"   // wait for the loss of the lock
	release   step = "release" // the lock
)

// An answer is the result of a step.
type answer struct {
	Token   uint64 // after acquire
	Balance int    // the balance that was read or written
	Stale   bool   // the guard refused the write or the claim
	Lost    bool   // the lock was lost, as far as the client knows
	Err     string // any other error
}

// A client is one of the two processes that add to the account.
type client struct {
	assignment assignment
	store      store
	locker     *snib.Locker

	lock    *snib.Lock
	write   writer
	balance int // as it was read
}

// serve is the main function of a client process: it reads its assignment, runs one step
// after the other, and returns the exit code.
func serve(in io.Reader, out io.Writer) int {
	steps, answers := json.NewDecoder(in), json.NewEncoder(out)
	c, err := newClient(steps)
	if err != nil {
		answers.Encode(answer{Err: err.Error()}) //nolint:errcheck // nobody is left to tell
		return 1
	}
	defer c.store.Close()  //nolint:errcheck // the process ends
	defer c.locker.Close() //nolint:errcheck // so does this
	for {
		var s step
		if steps.Decode(&s) != nil { // no more steps
			return 0
		}
		if answers.Encode(c.do(s)) != nil {
			return 1
		}
	}
}

func newClient(steps *json.Decoder) (*client, error) {
	c := new(client)
	if err := steps.Decode(&c.assignment); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	var err error
	if c.store, err = c.assignment.Place.open(ctx); err != nil {
		return nil, err
	}
	if c.locker, err = snib.New(c.store.Locks(), snib.TTL(ttl)); err != nil {
		return nil, errors.Join(err, c.store.Locks().Close(), c.store.Close())
	}
	return c, nil
}

// do runs a step. Its context is not that of the lock: between the last check of that context
// and the arrival of a write there is always some time, in the program, in the network or in
// the store. The pause in this example is in that time.
func (c *client) do(s step) answer {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	a, err := c.runStep(ctx, s)
	switch {
	case errors.Is(err, fence.ErrStale):
		a.Stale = true
	case err != nil:
		a.Err = err.Error()
	}
	return a
}

func (c *client) runStep(ctx context.Context, s step) (a answer, err error) {
	switch s {
	case acquire:
		if c.lock, err = c.locker.Acquire(ctx, lockName); err != nil {
			return a, err
		}
		return answer{Token: c.lock.Token()}, nil
	case open:
		c.write, err = c.store.Open(ctx, c.assignment.Guard, c.lock)
		return a, err
	case read:
		c.balance, err = c.store.Read(ctx)
		return answer{Balance: c.balance, Lost: c.lock.Context().Err() != nil}, err
	case write:
		sum := c.balance + c.assignment.Deposit
		return answer{Balance: sum}, c.write(ctx, sum)
	case awaitLoss:
		select {
		case <-c.lock.Lost():
			return answer{Lost: true}, nil
		case <-ctx.Done():
			return a, ctx.Err()
		}
	case release:
		err = c.lock.Release()
		if errors.Is(err, snib.ErrLost) {
			return answer{Lost: true}, nil
		}
		return a, err
	}
	return a, errors.New("unknown step " + string(s))
}
