package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const openingBalance = 100 // the balance at the beginning of a scene

// deposits are the amounts that the clients add to the account. A is stopped just
// before it writes its deposit.
var deposits = map[string]int{"A": 10, "B": 5}

// A scene is one way in which the two clients use the account at the same time: A reads and is
// stopped for longer than its TTL; B gets the lock and reads; A is resumed and writes.
type scene struct {
	title string
	guard guard
	late  bool // A writes after B's write, and not between B's read and write
	want  int  // the balance at the end
}

var scenes = []scene{
	{"1. No guard", noGuard, true, openingBalance + 10},
	{"2. Writes are checked; B has written before A goes on", writeOnly, true, openingBalance + 10 + 5},
	{"3. Writes are checked; B has only read before A goes on", writeOnly, false, openingBalance + 5},
	{"4. The account is claimed before it is read", claimed, false, openingBalance + 10 + 5},
}

var errTooBusy = fmt.Errorf("it was not stopped, and has lost its lock: this machine is too busy for a TTL of %v", ttl)

// A sceneRun is the state of a running scene.
type sceneRun struct {
	scene
	out   io.Writer
	began time.Time
	store store
	a, b  *process
	token map[*process]uint64
}

// run runs a scene with two new processes, and fails if the result is not as expected.
func (s scene) run(ctx context.Context, where location, out io.Writer) (err error) {
	st := &sceneRun{scene: s, out: out, token: make(map[*process]uint64)}
	if st.store, err = where.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.store.Locks().Close(), st.store.Close()) }()
	if err = st.store.Write(ctx, openingBalance); err != nil {
		return err
	}
	if st.a, err = start("A", assignment{where, s.guard, deposits["A"]}); err != nil {
		return err
	}
	defer st.a.end()
	if st.b, err = start("B", assignment{where, s.guard, deposits["B"]}); err != nil {
		return err
	}
	defer st.b.end()
	fmt.Fprintf(out, "\n%s\n\n", s.title)
	st.began = time.Now()
	refused, err := st.runCommonSteps(ctx)
	if err == nil && refused {
		err = st.retry(ctx)
	}
	if err != nil {
		return err
	}
	return st.checkResult(ctx)
}

// runCommonSteps runs the steps that all scenes have in common. It reports whether
// A's write was refused.
func (st *sceneRun) runCommonSteps(ctx context.Context) (refused bool, err error) {
	if err = st.acquireAndRead(ctx, st.a, "gets the lock"); err != nil {
		return false, err
	}
	if err = st.a.stop(); err != nil {
		return false, err
	}
	st.logStep(st.a, "is stopped (SIGSTOP) until its lease is over")
	if err = st.acquireAndRead(ctx, st.b, "gets the lock"); err != nil {
		return false, err
	}
	if st.late {
		if err = st.writeAndRelease(ctx, st.b); err != nil {
			return false, err
		}
	}
	if refused, err = st.resumeAndWrite(ctx); err != nil {
		return false, err
	}
	if !st.late {
		err = st.writeAndRelease(ctx, st.b)
	}
	return refused, err
}

// acquireAndRead has a client acquire the lock and read the account.
func (st *sceneRun) acquireAndRead(ctx context.Context, p *process, how string) error {
	a, err := p.do(ctx, acquire)
	if err != nil {
		return err
	}
	st.token[p] = a.Token
	if a, err = p.do(ctx, open); err == nil && a.Stale {
		err = fmt.Errorf("%s: the account refuses the holder of the lock", p.name)
	}
	if err != nil {
		return err
	}
	if st.guard == claimed {
		how += ", claims"
	}
	if a, err = p.do(ctx, read); err != nil {
		return err
	}
	if a.Lost {
		return fmt.Errorf("%s: %w", p.name, errTooBusy)
	}
	st.logStep(p, fmt.Sprintf("%s, reads %d, makes it %d", how, a.Balance, a.Balance+deposits[p.name]))
	return nil
}

// writeAndRelease has a client write and release the lock.
func (st *sceneRun) writeAndRelease(ctx context.Context, p *process) error {
	a, err := p.do(ctx, write)
	if err == nil && a.Stale {
		err = fmt.Errorf("%s: the account refuses the holder of the lock", p.name)
	}
	if err != nil {
		return err
	}
	released, err := p.do(ctx, release)
	if err == nil && released.Lost {
		err = fmt.Errorf("%s: %w", p.name, errTooBusy)
	}
	if err != nil {
		return err
	}
	st.logStep(p, fmt.Sprintf("writes %d: accepted; releases the lock", a.Balance))
	return nil
}

// resumeAndWrite resumes A, which then writes, and has it check its lock afterwards.
func (st *sceneRun) resumeAndWrite(ctx context.Context) (refused bool, err error) {
	if err = st.a.send(write); err != nil {
		return false, err
	}
	if err = st.a.resume(); err != nil {
		return false, err
	}
	a, err := st.a.result(ctx, write)
	if err != nil {
		return false, err
	}
	outcome := "accepted"
	if a.Stale {
		outcome = "REFUSED as stale"
	}
	st.logStep(st.a, fmt.Sprintf("goes on (SIGCONT), writes %d: %s", a.Balance, outcome))
	if _, err = st.a.do(ctx, awaitLoss); err != nil {
		return false, err
	}
	// A's lock is lost already; the release must not free B's lock.
	if _, err = st.a.do(ctx, release); err != nil {
		return false, err
	}
	st.logStep(st.a, "learns that its lock was lost")
	return a.Stale, nil
}

// retry has A repeat all of its work, because its write was refused.
func (st *sceneRun) retry(ctx context.Context) error {
	if err := st.acquireAndRead(ctx, st.a, "gets it again"); err != nil {
		return err
	}
	return st.writeAndRelease(ctx, st.a)
}

// logStep writes a line of the timeline.
func (st *sceneRun) logStep(p *process, what string) {
	fmt.Fprintf(st.out, "%6.3fs  %s  %-49s %16d\n", time.Since(st.began).Seconds(), p.name, what, st.token[p])
}

// checkResult prints the final balance, and fails if it is not as expected.
func (st *sceneRun) checkResult(ctx context.Context) error {
	got, err := st.store.Read(ctx)
	if err != nil {
		return err
	}
	result := "neither sum nor half of it"
	switch all := openingBalance + deposits["A"] + deposits["B"]; got {
	case all:
		result = "nothing is lost"
	case all - deposits["A"]:
		result = "A's deposit, which was accepted, is LOST"
	case all - deposits["B"]:
		result = "B's deposit, which was accepted, is LOST"
	}
	fmt.Fprintf(st.out, "Result: %d: %s\n", got, result)
	if got != st.want {
		return fmt.Errorf("the account has %d, want %d", got, st.want)
	}
	return nil
}
