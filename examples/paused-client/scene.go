package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const opening = 100 // what is on the account when a scene begins

// deposits are what the clients add to the account. That of A is what A was about to write when it was stopped.
var deposits = map[string]int{"A": 10, "B": 5}

// A scene is one way in which the two clients meet at the account: A reads and is stopped, past its TTL; B gets the lock and reads; A goes
// on and writes.
type scene struct {
	title string
	guard guard
	late  bool // A's write comes after B's, and not between B's read and write
	want  int  // what is on the account in the end
}

var scenes = []scene{
	{"1. No guard", noGuard, true, opening + 10},
	{"2. Writes are checked; B has written before A goes on", writeOnly, true, opening + 10 + 5},
	{"3. Writes are checked; B has only read before A goes on", writeOnly, false, opening + 5},
	{"4. The account is claimed before it is read", claimed, false, opening + 10 + 5},
}

// A stage is where a scene is played.
type stage struct {
	scene
	out   io.Writer
	began time.Time
	store store
	a, b  *process
	token map[*process]uint64
}

// play plays a scene with two new processes, and fails if it does not come out as it should.
func (s scene) play(ctx context.Context, where place, out io.Writer) (err error) {
	st := &stage{scene: s, out: out, token: make(map[*process]uint64)}
	if st.store, err = where.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.store.Locks().Close(), st.store.Close()) }()
	if err = st.store.Write(ctx, opening); err != nil {
		return err
	}
	if st.a, err = start("A", part{where, s.guard, deposits["A"]}); err != nil {
		return err
	}
	defer st.a.end()
	if st.b, err = start("B", part{where, s.guard, deposits["B"]}); err != nil {
		return err
	}
	defer st.b.end()
	fmt.Fprintf(out, "\n%s\n\n", s.title)
	st.began = time.Now()
	refused, err := st.meet(ctx)
	if err == nil && refused {
		err = st.again(ctx)
	}
	if err != nil {
		return err
	}
	return st.judge(ctx)
}

// meet is what all scenes have in common. It reports whether A's write was refused.
func (st *stage) meet(ctx context.Context) (refused bool, err error) {
	if err = st.enter(ctx, st.a, "gets the lock"); err != nil {
		return false, err
	}
	if err = st.a.stop(); err != nil {
		return false, err
	}
	st.note(st.a, "is stopped (SIGSTOP) until its lease is over")
	if err = st.enter(ctx, st.b, "gets the lock"); err != nil {
		return false, err
	}
	if st.late {
		if err = st.leave(ctx, st.b); err != nil {
			return false, err
		}
	}
	if refused, err = st.wake(ctx); err != nil {
		return false, err
	}
	if !st.late {
		err = st.leave(ctx, st.b)
	}
	return refused, err
}

// enter has a client take the lock and read the account.
func (st *stage) enter(ctx context.Context, p *process, how string) error {
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
		return fmt.Errorf("%s: it was not stopped, and has lost its lock: this machine is too busy for a TTL of %v", p.name, ttl)
	}
	st.note(p, fmt.Sprintf("%s, reads %d, makes it %d", how, a.Balance, a.Balance+deposits[p.name]))
	return nil
}

// leave has a client write, and release the lock.
func (st *stage) leave(ctx context.Context, p *process) error {
	a, err := p.do(ctx, write)
	if err == nil && a.Stale {
		err = fmt.Errorf("%s: the account refuses the holder of the lock", p.name)
	}
	if err != nil {
		return err
	}
	released, err := p.do(ctx, release)
	if err == nil && released.Lost {
		err = fmt.Errorf("%s: it was not stopped, and has lost its lock", p.name)
	}
	if err != nil {
		return err
	}
	st.note(p, fmt.Sprintf("writes %d: accepted; releases the lock", a.Balance))
	return nil
}

// wake lets A go on, with its write, and then has it look at its lock.
func (st *stage) wake(ctx context.Context) (refused bool, err error) {
	if err = st.a.tell(write); err != nil {
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
	st.note(st.a, fmt.Sprintf("goes on (SIGCONT), writes %d: %s", a.Balance, outcome))
	if _, err = st.a.do(ctx, learn); err != nil {
		return false, err
	}
	if _, err = st.a.do(ctx, release); err != nil { // of what is lost already; it must not free B's lock
		return false, err
	}
	st.note(st.a, "learns that its lock was lost")
	return a.Stale, nil
}

// again has A do all of its work once more, because its write was refused.
func (st *stage) again(ctx context.Context) error {
	if err := st.enter(ctx, st.a, "gets it again"); err != nil {
		return err
	}
	return st.leave(ctx, st.a)
}

// note writes a line of the timeline.
func (st *stage) note(p *process, what string) {
	fmt.Fprintf(st.out, "%6.3fs  %s  %-49s %16d\n", time.Since(st.began).Seconds(), p.name, what, st.token[p])
}

// judge says what has become of the account.
func (st *stage) judge(ctx context.Context) error {
	got, err := st.store.Read(ctx)
	if err != nil {
		return err
	}
	verdict := "neither sum nor half of it"
	switch all := opening + deposits["A"] + deposits["B"]; got {
	case all:
		verdict = "nothing is lost"
	case all - deposits["A"]:
		verdict = "A's deposit, which was accepted, is LOST"
	case all - deposits["B"]:
		verdict = "B's deposit, which was accepted, is LOST"
	}
	fmt.Fprintf(st.out, "Result: %d: %s\n", got, verdict)
	if got != st.want {
		return fmt.Errorf("the account has %d, want %d", got, st.want)
	}
	return nil
}
