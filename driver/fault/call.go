package fault

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver"
)

// A line is the network as a call finds it.
type line struct {
	how    Effect          // Pass if it is up
	cut    <-chan struct{} // closed when it goes down
	healed <-chan struct{} // closed when it comes up again
}

func (d *Driver) line() line {
	d.mu.Lock()
	defer d.mu.Unlock()
	return line{d.how, d.cut, d.healed}
}

// count numbers a call of op and returns its rule.
func (d *Driver) count(op Op) Rule {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[op]++
	return d.plan.rule(op, d.calls[op])
}

// do is call for operations that answer with nothing but an error.
func do(ctx context.Context, d *Driver, op Op, inner func(context.Context) error) error {
	_, err := call(ctx, d, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, inner(ctx) })
	return err
}

// call carries inner out as the rule for it and the state of the network say.
func call[T any](ctx context.Context, d *Driver, op Op, inner func(context.Context) (T, error)) (T, error) {
	var none T
	rule := d.count(op)
	if err := d.pause(ctx, rule.Before); err != nil {
		return none, err
	}
	at := d.line()
	if at.how != Pass {
		return none, d.dead(ctx, at)
	}
	switch rule.Effect {
	case Fail:
		return none, rule.Err
	case Hang, Deaf:
		return none, d.dead(ctx, line{how: rule.Effect, healed: at.healed})
	}
	if ctx.Err() != nil { // the inner driver would hear of that a moment later, and grant in between
		return none, context.Cause(ctx)
	}
	got, err := transmit(ctx, d, at, inner)
	if late := d.pause(ctx, rule.After); late != nil {
		return none, late
	}
	if rule.Effect == Drop {
		return none, rule.Err
	}
	return got, err
}

// transmit calls inner in a goroutine of its own, which a cut of the network leaves behind.
func transmit[T any](ctx context.Context, d *Driver, at line, inner func(context.Context) (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	far := d.remote(ctx)
	stop := context.AfterFunc(ctx, far.withdraw)
	answers := make(chan answer, 1)
	go func() {
		got, err := inner(far)
		answers <- answer{got, err}
		stop()
		far.cancel(nil) // frees what it holds
	}()
	select {
	case a := <-answers:
		if at = d.line(); at.how == Pass {
			return a.got, a.err
		}
	case <-at.cut:
		at = d.line()
	}
	d.whenUp(func() { far.cancel(ErrSevered) })
	var none T
	return none, d.dead(ctx, at)
}

// A remote is a caller's context as the inner driver sees it: while the network is down, that the caller gave up does
// not get through.
type remote struct {
	context.Context
	cancel context.CancelCauseFunc
	caller context.Context
	driver *Driver
}

func (d *Driver) remote(caller context.Context) *remote {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	return &remote{ctx, cancel, caller, d}
}

// withdraw lets the inner driver know that the caller gave up.
func (r *remote) withdraw() {
	r.driver.whenUp(func() { r.cancel(context.Cause(r.caller)) })
}

// Err does not wait until withdraw was called in another goroutine: a driver that asks must hear of a cancellation that
// came before.
func (r *remote) Err() error {
	if r.Context.Err() == nil && r.caller.Err() != nil && r.driver.line().how == Pass {
		r.withdraw()
	}
	return r.Context.Err()
}

func (r *remote) Deadline() (time.Time, bool) { return r.caller.Deadline() }

// whenUp runs f now or, if the network is down, when it is up again.
func (d *Driver) whenUp(f func()) {
	d.mu.Lock()
	if d.how != Pass {
		d.stranded = append(d.stranded, f)
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	f()
}

// dead is the end of a call on a line that is down.
func (d *Driver) dead(ctx context.Context, at line) error {
	done := ctx.Done()
	switch at.how {
	case Deaf:
		done = nil
	case Fail, Pass: // Pass: it came up again just now, but not for a call that was under way
		return ErrSevered
	}
	select {
	case <-done:
		return context.Cause(ctx)
	case <-at.healed:
		return ErrSevered
	case <-d.closed:
		return driver.ErrClosed
	}
}

// pause sleeps for as long as a rule says.
func (d *Driver) pause(ctx context.Context, long time.Duration) error {
	if long <= 0 {
		return nil
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.closed:
		return driver.ErrClosed
	}
}
