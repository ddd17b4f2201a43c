// Package fault wraps a driver so that its store seems slow, failing, silent or gone. It is
// used to test what is built on drivers.
//
// A [Plan] says which calls get which fault. [Driver.Sever] cuts the wrapped driver off from its
// store, which lives on, until [Driver.Heal].
package fault

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// ErrInjected is the error of a call that a rule failed, unless the rule gives another.
	ErrInjected driver.Sentinel = "injected fault"

	// ErrSevered is the error of a call that found the network down.
	ErrSevered driver.Sentinel = "severed from the store"
)

// An Op is an operation of a driver.
type Op uint8

const (
	Acquire   Op = iota + 1 // Driver.Acquire
	Renew                   // Driver.Renew; a batch is one call
	Release                 // Lease.Release
	Inspect                 // Status, List, Break and Withdraw of driver.Inspector
	SetHolder               // Lease.SetHolder
)

// An Effect is what happens to a call.
type Effect uint8

const (
	Pass Effect = iota // the call is passed on; only a rule's delays apply
	Fail               // the call never reaches the store: an error at once
	Drop               // the store does it, but the answer is lost: an error instead
	Hang               // the call never reaches the store, and returns when its context is done
)

// A Rule says what happens to some calls. The zero values of Op and Call mean "any".
type Rule struct {
	Op   Op
	Call int // only the call with this number among those of Op, counted from 1

	Effect Effect
	Before time.Duration // delay before the call goes to the store
	After  time.Duration // delay of the answer, which is lost if the context ends meanwhile
	Err    error         // of Fail and Drop; nil means ErrInjected
}

// A Plan is a list of rules. The first rule that matches a call applies. The zero Plan has no
// faults.
type Plan struct{ Rules []Rule }

// rule returns the rule for the k-th call of op.
func (p Plan) rule(op Op, k int) Rule {
	for _, r := range p.Rules {
		if r.Op != 0 && r.Op != op || r.Call != 0 && r.Call != k {
			continue
		}
		if r.Err == nil {
			r.Err = ErrInjected
		}
		return r
	}
	return Rule{}
}

// A Driver is a driver with faults. It is safe for concurrent use.
type Driver struct {
	inner driver.Driver
	plan  Plan

	closeOnce sync.Once
	closed    chan struct{} // closed by Close

	mu             sync.Mutex // guards what follows
	calls          [SetHolder + 1]int
	severed        chan struct{} // closed by Sever, replaced by Heal
	healed         chan struct{} // closed by Heal, which replaces it
	effect         Effect        // Fail or Hang while severed; else Pass
	pendingCleanup []func()      // run by Heal: each ends a call that Sever cut off
}

var _ driver.Driver = (*Driver)(nil)

// Wrap returns d with the faults of plan. Closing it closes d.
func Wrap(d driver.Driver, plan Plan) *Driver {
	plan.Rules = slices.Clone(plan.Rules)
	return &Driver{
		inner: d, plan: plan,
		closed: make(chan struct{}), severed: make(chan struct{}), healed: make(chan struct{}),
	}
}

// Calls returns the number of calls of op so far.
func (d *Driver) Calls(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[op]
}

// Sever makes each call, also those under way, find the network down until Heal: with Fail it
// gets ErrSevered at once, with Hang it waits for its context. The store is not told: a lease
// stays in it, and so does the place of a waiter, whose grant then reaches nobody and lapses.
//
// Reports of the driver by Request.OnLost and Request.OnWanted still arrive.
func (d *Driver) Sever(effect Effect) {
	if effect != Fail && effect != Hang {
		panic("fault: Sever takes Fail or Hang")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.effect == Pass {
		close(d.severed)
	}
	d.effect = effect
}

// Heal ends what Sever began. Calls that still hang, also those that hang by a rule, get
// ErrSevered, and requests that callers left waiting in the store meanwhile are withdrawn.
func (d *Driver) Heal() {
	d.mu.Lock()
	pending := d.pendingCleanup
	close(d.healed)
	d.healed, d.pendingCleanup = make(chan struct{}), nil
	if d.effect != Pass {
		d.effect, d.severed = Pass, make(chan struct{})
	}
	d.mu.Unlock()
	for _, cleanUp := range pending {
		cleanUp()
	}
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info { return d.inner.Info() }

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	inner, err := call(ctx, d, Acquire, func(ctx context.Context) (driver.Lease, error) {
		return d.inner.Acquire(ctx, req)
	})
	if err == nil && ctx.Err() != nil { // the inner driver learns of that a moment later
		_ = inner.Release(context.WithoutCancel(ctx)) // if it fails, the lease lapses
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &lease{driver: d, Lease: inner}, nil
}

// Lease implements [driver.Driver].
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &lease{driver: d, Lease: d.inner.Lease(name, id, ttl)}
}

// Renew implements [driver.Driver]. A fault affects all leases of the batch, or of the driver.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	inner := make([]driver.Lease, len(due))
	for i, l := range due {
		inner[i] = l.(*lease).Lease
	}
	answers, err := call(ctx, d, Renew, func(ctx context.Context) ([]driver.Renewal, error) {
		return d.inner.Renew(ctx, inner), nil
	})
	if err != nil {
		answers = slices.Repeat([]driver.Renewal{{Err: err}}, max(1, len(due)))
	}
	return answers
}

// Close implements [driver.Driver]. It ends all calls that hang, and closes the inner driver
// also while severed.
func (d *Driver) Close() error {
	d.closeOnce.Do(func() { close(d.closed) })
	return d.inner.Close()
}

// A lease is an inner lease whose calls may get faults.
type lease struct {
	driver.Lease
	driver *Driver
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	return do(ctx, l.driver, Release, l.Lease.Release)
}

// SetHolder implements [driver.Lease].
func (l *lease) SetHolder(ctx context.Context, h driver.Holder) error {
	return do(ctx, l.driver, SetHolder, func(ctx context.Context) error { return l.Lease.SetHolder(ctx, h) })
}

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	return call(ctx, d, Inspect, func(ctx context.Context) (driver.Status, error) {
		return d.inner.Status(ctx, name)
	})
}

// List implements [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	// The inner call may outlive this one while severed, and must not call yield then. So all
	// results are collected first.
	all, err := call(ctx, d, Inspect, func(ctx context.Context) ([]driver.Status, error) {
		var all []driver.Status
		err := d.inner.List(ctx, prefix, func(s driver.Status) bool {
			all = append(all, s)
			return true
		})
		return all, err
	})
	for _, s := range all {
		if !yield(s) {
			return nil
		}
	}
	return err
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	return do(ctx, d, Inspect, func(ctx context.Context) error {
		return d.inner.Break(ctx, name, id)
	})
}

// Withdraw implements [driver.Inspector].
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	return do(ctx, d, Inspect, func(ctx context.Context) error {
		return d.inner.Withdraw(ctx, name, id)
	})
}
