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
	// ttl is that of the lock: how long B waits for it when A is stopped.
	ttl = 2 * time.Second

	// patience bounds each step, for when a store is gone.
	patience = 30 * time.Second

	clientVar = "PAUSED_CLIENT" // set in the processes of clients
	lockName  = "paused-client/account"
)

func isClient() bool { return os.Getenv(clientVar) != "" }

// A part is the first thing that a client is told: who it is. It comes through the pipe, because the URL may have a password.
type part struct {
	Place   place
	Guard   guard
	Deposit int
}

// A step is what a client is told to do next.
type step string

const (
	acquire step = "acquire" // the lock
	open    step = "open"    // the account, which claims it if that is the guard
	read    step = "read"    // the balance, and look whether the lock is still held
	write   step = "write"   // the balance that was read, with the deposit, without another look at the lock
	learn   step = "learn"   // of the loss of the lock
	release step = "release" // the lock
)

// An answer is what came of a step.
type answer struct {
	Token   uint64 // after acquire
	Balance int    // that was read or written
	Stale   bool   // the guard refused
	Lost    bool   // the lock was lost, as far as the client knows
	Err     string // what else went wrong
}

// A client is one of the two processes that add to the account.
type client struct {
	part   part
	store  store
	locker *snib.Locker

	lock    *snib.Lock
	write   writer
	balance int // as it was read
}

// serve is the whole process of a client: it takes its part, and then one step after the other, and returns its exit code.
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
		if steps.Decode(&s) != nil { // the play is over
			return 0
		}
		if answers.Encode(c.do(s)) != nil {
			return 1
		}
	}
}

func newClient(steps *json.Decoder) (*client, error) {
	c := new(client)
	if err := steps.Decode(&c.part); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if c.store, err = c.part.Place.open(ctx); err != nil {
		return nil, err
	}
	if c.locker, err = snib.New(c.store.Locks(), snib.TTL(ttl)); err != nil {
		return nil, errors.Join(err, c.store.Locks().Close(), c.store.Close())
	}
	return c, nil
}

// do takes a step. Its context is not that of the lock: between the last look at that one and the arrival of a write there is always a moment, in
// the program, in the network or in the store, and the pause of this play is in it.
func (c *client) do(s step) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := c.take(ctx, s)
	switch {
	case errors.Is(err, fence.ErrStale):
		a.Stale = true
	case err != nil:
		a.Err = err.Error()
	}
	return a
}

func (c *client) take(ctx context.Context, s step) (a answer, err error) {
	switch s {
	case acquire:
		if c.lock, err = c.locker.Acquire(ctx, lockName); err != nil {
			return a, err
		}
		return answer{Token: c.lock.Token()}, nil
	case open:
		c.write, err = c.store.Open(ctx, c.part.Guard, c.lock)
		return a, err
	case read:
		c.balance, err = c.store.Read(ctx)
		return answer{Balance: c.balance, Lost: c.lock.Context().Err() != nil}, err
	case write:
		sum := c.balance + c.part.Deposit
		return answer{Balance: sum}, c.write(ctx, sum)
	case learn:
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
