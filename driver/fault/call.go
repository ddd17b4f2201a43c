package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A networkState is the state of the network when a call looks at it.
type networkState struct {
	effect  Effect          // Pass if the network is up
	severed <-chan struct{} // closed when the network goes down
	healed  <-chan struct{} // closed when the network comes up again
}

func (d *Driver) state() networkState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return networkState{d.effect, d.severed, d.healed}
}

// count counts a call of op and returns its rule.
func (d *Driver) count(op Op) Rule {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[op]++
	return d.plan.rule(op, d.calls[op])
}

// do is like call, for operations that return nothing but an error.
func do(ctx context.Context, d *Driver, op Op, inner func(context.Context) error) error {
	_, err := call(ctx, d, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, inner(ctx) })
	return err
}

// call runs inner as the rule for it and the state of the network say.
func call[T any](ctx context.Context, d *Driver, op Op, inner func(context.Context) (T, error)) (T, error) {
	var none T
	rule := d.count(op)
	if err := d.pause(ctx, rule.Before); err != nil {
		return none, err
	}
	state := d.state()
	if state.effect != Pass {
		return none, d.failCall(ctx, state)
	}
	switch rule.Effect {
	case Fail:
		return none, rule.Err
	case Hang:
		return none, d.failCall(ctx, networkState{effect: Hang, healed: state.healed})
	}
	if ctx.Err() != nil && op != Release { // the inner driver would notice a moment later, and grant in between
		return none, context.Cause(ctx)
	}
	got, err := transmit(ctx, d, state, inner)
	if delayErr := d.pause(ctx, rule.After); delayErr != nil {
		return none, delayErr
	}
	if rule.Effect == Drop {
		return none, rule.Err
	}
	return got, err
}

// transmit calls inner in a goroutine of its own, and does not wait for it once the network is
// severed.
func transmit[T any](ctx context.Context, d *Driver, state networkState,
	inner func(context.Context) (T, error)) (T, error) {
	type answer struct {
		got T
		err error
	}
	remote := d.remoteContext(ctx)
	stop := context.AfterFunc(ctx, remote.propagateCancel)
	answers := make(chan answer, 1)
	go func() {
		got, err := inner(remote)
		answers <- answer{got, err}
		stop()
		remote.cancel(nil) // releases the context's resources
	}()
	select {
	case a := <-answers:
		if state = d.state(); state.effect == Pass {
			return a.got, a.err
		}
	case <-state.severed:
		state = d.state()
	}
	d.whenHealed(func() { remote.cancel(ErrSevered) })
	var none T
	return none, d.failCall(ctx, state)
}

// A remoteContext is a caller's context as the inner driver sees it: while the network is down,
// it does not end when the caller gives up.
type remoteContext struct {
	context.Context
	cancel context.CancelCauseFunc
	caller context.Context
	driver *Driver
}

func (d *Driver) remoteContext(caller context.Context) *remoteContext {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	return &remoteContext{ctx, cancel, caller, d}
}

// propagateCancel tells the inner driver that the caller gave up; while the network is down,
// that waits for Heal.
func (r *remoteContext) propagateCancel() {
	r.driver.whenHealed(func() { r.cancel(context.Cause(r.caller)) })
}

// Err does not wait until propagateCancel was called in another goroutine: a driver that checks
// the context must see a cancellation that came before.
func (r *remoteContext) Err() error {
	if r.Context.Err() == nil && r.caller.Err() != nil && r.driver.state().effect == Pass {
		r.propagateCancel()
	}
	return r.Context.Err()
}

func (r *remoteContext) Deadline() (time.Time, bool) { return r.caller.Deadline() }

// whenHealed runs f now or, if the network is down, when it is up again.
func (d *Driver) whenHealed(f func()) {
	d.mu.Lock()
	if d.effect != Pass {
		d.pendingCleanup = append(d.pendingCleanup, f)
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	f()
}

// failCall ends a call that does not reach the store: it waits as long as the effect says, and
// returns the error.
func (d *Driver) failCall(ctx context.Context, state networkState) error {
	if state.effect != Hang { // Pass: it came up again just now, but not for a call under way
		return errSevered()
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
	case <-state.healed:
		return errSevered()
	case <-d.closed:
		return driver.ErrClosed
	}
}

// errSevered returns ErrSevered, as the contract demands it of a store that is out of reach.
func errSevered() error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, ErrSevered) }

// pause waits for the delay of a rule. It returns an error if ctx or the driver ends before.
func (d *Driver) pause(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
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
