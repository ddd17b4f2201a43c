package snib

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a [Locker] acquires. The same options go to [New] and to [Locker.With].
type Option struct{ set func(*config) error }

// config is what the options of a Locker add up to.
type config struct {
	ttl            time.Duration
	maxWait        time.Duration // 0: as long as the context lives
	maxHold        time.Duration // 0: unbounded
	minHold        time.Duration
	lockDelay      time.Duration
	releaseTimeout time.Duration
	noWait         bool
	reentrant      bool
	shared         bool
	fair           bool
	inheritable    bool
	trackLeaks     bool
	slots          int
	owner          string // "": a new one for each acquisition
	label          string
	prefix         string
	fencing        driver.Fencing
	traces         listeners
	traced         bool // there is one
}

const (
	defaultTTL            = 30 * time.Second
	defaultReleaseTimeout = 5 * time.Second
)

// TTL sets how long the lock outlives a holder that died without releasing it. While the hold lives it is renewed, every
// third of a TTL. The default is 30 seconds, or the nearest that the backend can do. A TTL that is not positive, or
// outside the backend's range, is an [ErrInvalid].
func TTL(d time.Duration) Option {
	return positive("TTL", d, func(c *config) { c.ttl = d })
}

// MaxWait bounds the wait for the lock; when it is over, Acquire answers [ErrHeld]. By default only the context bounds
// it. A duration that is not positive is an [ErrInvalid]; see [NoWait].
func MaxWait(d time.Duration) Option {
	return positive("MaxWait", d, func(c *config) { c.maxWait = d })
}

// NoWait makes Acquire answer [ErrHeld] instead of waiting, as [Locker.TryAcquire] does.
func NoWait() Option {
	return always(func(c *config) { c.noWait = true })
}

// MaxHold bounds the time from the grant to the end of a hold. A hold that reaches it is lost: its context ends with
// [ErrLost], it is not renewed any more, and unless it is released the store gives the lock away within one TTL. By
// default a hold lasts until Release.
func MaxHold(d time.Duration) Option {
	return positive("MaxHold", d, func(c *config) { c.maxHold = d })
}

// MinHold keeps a released lock taken until its hold has lasted this long, by the store's clock. Release does not wait
// for it. Hosts whose clocks differ by less than d then don't run a short scheduled job twice.
func MinHold(d time.Duration) Option {
	return positive("MinHold", d, func(c *config) { c.minHold = d })
}

// LockDelay keeps the lock closed for d longer than its hold could last, unless the hold was released: when its process died or was cut
// off, or the hold was lost. It is for resources that can't check a fencing token: what a holder sends late, by less than d, then still
// arrives before somebody else gets the lock. Who waits for a lock of a holder that died waits for d longer.
//
// The store's lease is TTL and d together, and that has to be within the backend's range. Where leases end with a session,
// LockDelay is an [ErrInvalid], unless the session outlives its client ([driver.Info].SessionTTL) by more than d; d then comes off the
// time that the hold lasts without a renewal.
//
// It is the lock-delay of Burrows, "The Chubby lock service for loosely-coupled distributed systems", OSDI 2006, section 2.4.
func LockDelay(d time.Duration) Option {
	return positive("LockDelay", d, func(c *config) { c.lockDelay = d })
}

// ReleaseTimeout bounds how long [Lock.Release] waits for the store. The default is 5 seconds.
func ReleaseTimeout(d time.Duration) Option {
	return positive("ReleaseTimeout", d, func(c *config) { c.releaseTimeout = d })
}

// Reentrant lets an Acquire whose context carries a hold on the same name add to that hold, which then ends when all its
// locks are released; TTL, MaxHold and MinHold stay the outermost one's. Without it such an Acquire answers [ErrNested].
func Reentrant() Option {
	return always(func(c *config) { c.reentrant = true })
}

// Owner names the acquisition instead of a new random id. Acquiring is idempotent for an owner: who holds the lock under
// this id already gets the same hold again, with the same token, and it ends when all its locks are released.
//
// The id must be unique among those who contend, and used by one process at a time: another one that acquires with it takes
// the hold over, with its own TTL, and its release ends it for both. Whoever knows the id can release the lock.
func Owner(id string) Option {
	return Option{func(c *config) error {
		if id == "" || len(id) > driver.MaxName {
			return fmt.Errorf("%w Owner: it has %d bytes; 1 to %d are allowed", ErrInvalid, len(id), driver.MaxName)
		}
		c.owner = id
		return nil
	}}
}

// Label is a text that is shown to those who inspect the lock, beside host and process id. It decides nothing but that holds
// of different labels are not handed over within the process without the store.
func Label(text string) Option {
	return always(func(c *config) { c.label = text })
}

// Shared asks for the read side of a read/write lock: any number of shared holds, or one that is not shared.
func Shared() Option {
	return always(func(c *config) { c.shared = true })
}

// Slots makes the name a semaphore with n holders at a time. All who contend for the name must give the same n; another
// one, or none, is an [ErrKind] while somebody holds it. An n that is not positive is an [ErrInvalid].
func Slots(n int) Option {
	return Option{func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("%w Slots: %d is not positive", ErrInvalid, n)
		}
		c.slots = n
		return nil
	}}
}

// Fair asks for strict order of arrival among all waiters of a name, over all processes. Each waiter then stands in the
// store's queue by itself, instead of one for each process. A backend that can't do it is refused.
func Fair() Option {
	return always(func(c *config) { c.fair = true })
}

// RequireFencing refuses a backend whose fencing tokens are weaker than the given strength, and makes a token that went
// back an [ErrRegressed].
func RequireFencing(strength driver.Fencing) Option {
	return always(func(c *config) { c.fencing = strength })
}

// Prefix is put before every name. A second Prefix follows the first.
func Prefix(p string) Option {
	return always(func(c *config) { c.prefix += p })
}

// Inheritable asks for a hold whose [Lock.File] keeps the lock taken when a child process inherits it.
func Inheritable() Option {
	return always(func(c *config) { c.inheritable = true })
}

// TrackLeaks reports holds whose [*Lock] was garbage-collected without Release, through [Trace] and the log, with the
// stack of their Acquire, and then releases them. It costs a stack trace for each acquisition.
func TrackLeaks() Option {
	return always(func(c *config) { c.trackLeaks = true })
}

// Tracing has t's functions called. More than one Trace may be given. A nil t is ignored.
func Tracing(t *Trace) Option {
	return always(func(c *config) {
		if t != nil {
			c.traces.add(t)
			c.traced = true
		}
	})
}

// Logging writes what happens to locks to l: losses, leaks and tokens that went back as errors, the rest for debugging.
// Owner ids are never written. Messages and keys are stable; docs/metrics.md lists them.
func Logging(l *slog.Logger) Option { return Tracing(logTrace(l)) }

func always(set func(*config)) Option {
	return Option{func(c *config) error { set(c); return nil }}
}

func positive(name string, d time.Duration, set func(*config)) Option {
	return Option{func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("%w %s: %v is not positive", ErrInvalid, name, d)
		}
		set(c)
		return nil
	}}
}

// configure applies opts to c and refuses what the backend can't do.
func (c config) configure(info driver.Info, opts []Option) (config, error) {
	for _, o := range opts {
		if o.set == nil {
			return c, fmt.Errorf("%w option: the zero Option", ErrInvalid)
		}
		if err := o.set(&c); err != nil {
			return c, err
		}
	}
	if c.ttl == 0 {
		c.ttl = max(defaultTTL, info.MinTTL)
		if info.MaxTTL > 0 {
			c.ttl = min(c.ttl, info.MaxTTL)
		}
	}
	return c, c.checkAgainst(info)
}

// checkAgainst reports what c asks for beyond what the backend promises.
func (c config) checkAgainst(info driver.Info) error {
	switch {
	case c.ttl < info.MinTTL:
		return fmt.Errorf("%w TTL: %v is shorter than %v, the least of this backend", ErrInvalid, c.ttl, info.MinTTL)
	case info.MaxTTL > 0 && c.ttl > info.MaxTTL:
		return fmt.Errorf("%w TTL: %v is longer than %v, the most of this backend", ErrInvalid, c.ttl, info.MaxTTL)
	case info.MaxTTL > 0 && c.lockDelay > info.MaxTTL-c.ttl:
		return fmt.Errorf("%w LockDelay: %v and the TTL of %v are more than %v, the most of this backend", ErrInvalid, c.lockDelay, c.ttl, info.MaxTTL)
	case c.lockDelay > 0 && info.Tenure == driver.TenureSession && info.SessionTTL <= c.lockDelay:
		return fmt.Errorf("%w LockDelay: here a lock is free %v after its holder's session has gone silent, which is not longer than %v",
			ErrInvalid, info.SessionTTL, c.lockDelay)
	case c.fencing > info.Fencing:
		return fmt.Errorf("%w RequireFencing: fencing is %v required and %v here", ErrInvalid, c.fencing, info.Fencing)
	case c.fair && info.Fairness == driver.FairNever:
		return fmt.Errorf("%w Fair: this backend does not keep the order of arrival", ErrInvalid)
	case c.shared && c.slots > 0:
		return fmt.Errorf("%w Shared with Slots: a name is a read/write lock or a semaphore, not both", ErrInvalid)
	case c.shared && !info.Shared:
		return fmt.Errorf("%w Shared: this backend has no read/write locks", ErrInvalid)
	case c.slots > 0 && !info.Slots:
		return fmt.Errorf("%w Slots: this backend has no semaphores", ErrInvalid)
	}
	return nil
}
