package snib

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a [Locker] acquires locks. [New] and [Locker.With] take the same options.
type Option struct{ set func(*config) error }

// config is the sum of a Locker's options.
type config struct {
	ttl          time.Duration
	maxWait      time.Duration // 0: until the context ends
	maxHold      time.Duration // 0: unbounded
	minHold      time.Duration
	lockDelay    time.Duration
	retryTimeout time.Duration
	noWait       bool
	noRenewal    bool
	detached     bool // implies noRenewal
	reentrant    bool
	shared       bool
	fair         bool
	slots        int
	label        string
	prefix       string
	fencing      driver.Fencing // the least strength that is required
	traces       traceHooks
	hasTraces    bool // traces is not empty
}

// exclusive reports whether a hold excludes all others.
func (c *config) exclusive() bool { return !c.shared && c.slots == 0 }

const (
	defaultTTL = 30 * time.Second
	noRetry    = time.Nanosecond // the retryTimeout of a Locker that does not retry
)

// TTL sets how long the lock outlives a holder that died without releasing it. While the
// hold lives, its lease is renewed every third of the TTL. The default is 30 seconds, or
// the nearest that the backend supports. A TTL that is not positive, or outside the
// backend's range, is an [ErrInvalid].
//
// Where leases end with a session, the store frees the locks of a dead holder when it ends the
// session. The driver's option Timeout sets when that is. A TTL that is shorter than the session
// lasts (Info.SessionTTL) is an ErrInvalid, and a longer one changes nothing, except with
// [NoRenewal].
func TTL(d time.Duration) Option {
	return positiveOption("TTL", d, func(c *config) { c.ttl = d })
}

// MaxWait bounds the wait for the lock. When it is over, Acquire returns [ErrHeld].
// By default only the context bounds the wait. A duration that is not positive is
// an [ErrInvalid]; see [NoWait].
func MaxWait(d time.Duration) Option {
	return positiveOption("MaxWait", d, func(c *config) { c.maxWait = d })
}

// NoWait makes Acquire return [ErrHeld] instead of waiting, as [Locker.TryAcquire] does.
func NoWait() Option {
	return newOption(func(c *config) { c.noWait = true })
}

// NoRenewal makes a hold end by itself at the end of its [TTL]. The Locker does not renew it. The
// TTL counts from the request that led to the grant. A hold that is not released by then is lost:
// its context ends with [ErrLost], 1 % of the TTL and 2 ms before the store frees the lock. So the
// TTL must be longer than the work. Use NoRenewal if work that hangs in a living process must not
// keep the lock. [MaxHold] bounds a hold that is renewed.
//
// Renewals also find out that the store has ended a lease early: it was broken by force, or the
// store has lost its memory. With NoRenewal, the holder learns that from the store's message,
// where the backend has one (Info.TellsLoss), and else at the end of the TTL or from Release.
//
// Each hold with NoRenewal is a grant of the store. None is handed over within the process, and
// acquiring again, by [Reentrant], does not extend it.
//
// Where leases end with a session, the driver keeps the session alive for all its locks. There the
// Locker releases the lock at the end of the TTL. If the holder dies, the lock is free when the
// session ends.
func NoRenewal() Option {
	return newOption(func(c *config) { c.noRenewal = true })
}

// MaxHold bounds the time from the grant to the end of a hold. A hold that reaches the bound is
// lost: its context ends with [ErrLost], and its lease is not renewed any more. Unless it is
// released, the store gives the lock away within one TTL. By default a hold lasts until Release,
// however long that takes: set MaxHold for work that may hang while its program lives.
func MaxHold(d time.Duration) Option {
	return positiveOption("MaxHold", d, func(c *config) { c.maxHold = d })
}

// MinHold keeps a released lock taken until its hold has lasted this long, by the store's clock.
// Release does not wait for that. With MinHold, hosts whose clocks differ by less than d do not
// run a short scheduled job twice. It is for one name: acquisitions of several, such as
// [Locker.AcquireAll], are an [ErrInvalid] with it.
func MinHold(d time.Duration) Option {
	return positiveOption("MinHold", d, func(c *config) { c.minHold = d })
}

// LockDelay keeps the lock closed for d after its hold, unless the hold was released: when its
// process died or was cut off, or the hold was lost. Use it for a resource that can't check a
// fencing token: what a holder sends late, by less than d, still arrives before somebody else
// gets the lock. After the death of a holder, waiters wait for d longer.
//
// The store's lease lasts TTL plus d, which must be within the backend's range. Where leases
// end with a session, LockDelay is an [ErrInvalid], unless the session outlives its client
// (Info.SessionTTL) by more than d. There, d is subtracted from the time that the
// hold lasts without a renewal.
//
// This is the lock-delay of Burrows, "The Chubby lock service for loosely-coupled distributed
// systems", OSDI 2006, section 2.4.
func LockDelay(d time.Duration) Option {
	return positiveOption("LockDelay", d, func(c *config) { c.lockDelay = d })
}

// RetryTimeout sets how long an acquisition that may wait is retried while the store is
// unavailable ([ErrUnavailable]). The default is one minute, on every backend. With 0, the first
// failure ends the acquisition. A negative duration is an [ErrInvalid]. A request to a store that
// hangs may take up to 5 seconds longer. The time in which the store answers does not count: while
// it has no connection left ([ErrFull]), and during the grace period of Redis, an acquisition
// waits as it waits for a holder.
func RetryTimeout(d time.Duration) Option {
	return Option{func(c *config) error {
		if d < 0 {
			return driver.Invalidf("RetryTimeout: %v is negative; 0 means not to retry", d)
		}
		c.retryTimeout = max(d, noRetry)
		return nil
	}}
}

// Reentrant lets an Acquire whose context carries a hold on the same name join that hold. The
// hold ends when all its Locks are released. TTL, NoRenewal, MaxHold and MinHold stay those of the
// outermost Acquire. Joining sends no request to the store, and does not extend the hold. Without
// Reentrant such an Acquire returns [ErrNested].
//
// Whoever has the context has the lock. Goroutines that get the same context, or one derived from
// it, all join the hold and run at the same time: Reentrant excludes other holds, and not them. If
// they must exclude one another, give them a context without the hold, such as that of the
// outermost Acquire, or a mutex.
func Reentrant() Option {
	return newOption(func(c *config) { c.reentrant = true })
}

// Label sets a text that is shown to people who inspect the lock, beside host and
// process id. It affects one thing only: a lease is not handed over within the process
// between holds with different labels.
func Label(text string) Option {
	return newOption(func(c *config) { c.label = text })
}

// Shared acquires the read side of a read/write lock: a name has any number of shared
// holds, or one exclusive hold.
func Shared() Option {
	return newOption(func(c *config) { c.shared = true })
}

// Slots makes the name a semaphore with n holders at a time. If callers give several numbers, as in
// a rolling deploy that changes n, there are never more holders than any of them asked for, and the
// others wait. While somebody holds the name, a request without Slots is an [ErrKind]. An n that is
// not between 1 and 1,000,000,000 is an [ErrInvalid]. A slot has no number; [Locker.AcquireAny]
// takes one of n names.
func Slots(n int) Option {
	return Option{func(c *config) error {
		if n <= 0 || n > driver.MaxSlots {
			return driver.Invalidf("Slots: %d is not between 1 and %d", n, driver.MaxSlots)
		}
		c.slots = n
		return nil
	}}
}

// Fair asks for strict order of arrival among all waiters of a name, over all processes. Each
// waiter is then in the store's queue itself, instead of one for each process. A backend that
// does not support this is an [ErrInvalid].
func Fair() Option {
	return newOption(func(c *config) { c.fair = true })
}

// RequireFencing refuses, with [ErrInvalid], a backend whose fencing tokens are weaker than
// strength. It also makes Acquire return [ErrRegressed] if a token goes back.
func RequireFencing(strength Fencing) Option {
	return newOption(func(c *config) { c.fencing = strength })
}

// Fencing is the strength of a backend's fencing tokens: [FencingNone], [FencingClock] or
// [FencingDurable].
type Fencing = driver.Fencing

// The strengths of fencing tokens. Stronger is greater.
const (
	// FencingNone means that there are no tokens, or that they say nothing.
	FencingNone = driver.FencingNone

	// FencingClock means that tokens are unique and ordered while the store remembers. Across a
	// loss of its memory they are ordered if clocks are right to within half the outage.
	FencingClock = driver.FencingClock

	// FencingDurable means that tokens are ordered as long as a majority, or the durable store,
	// keeps what it acknowledged.
	FencingDurable = driver.FencingDurable
)

// Prefix adds p before every name. A second Prefix is added after the first.
func Prefix(p string) Option {
	return newOption(func(c *config) { c.prefix += p })
}

// Tracing calls the functions of t. It may be given more than once, for
// several Traces. A nil t is ignored.
func Tracing(t *Trace) Option {
	return newOption(func(c *config) {
		if t != nil {
			c.traces.add(t)
			c.hasTraces = true
		}
	})
}

// Logging writes to l what happens to locks: losses and tokens that went back as errors;
// acquisitions that wait for the store or failed because of it, renewals that failed and releases
// that were not confirmed as warnings; the rest at lower levels. Grant ids are never written.
// Messages and keys are stable; docs/metrics.md explains them.
func Logging(l *slog.Logger) Option { return Tracing(logTrace(l)) }

func newOption(set func(*config)) Option {
	return Option{func(c *config) error { set(c); return nil }}
}

func positiveOption(name string, d time.Duration, set func(*config)) Option {
	return Option{func(c *config) error {
		if d <= 0 {
			return driver.Invalidf("%s: %v is not positive", name, d)
		}
		set(c)
		return nil
	}}
}

// withOptions returns c with opts applied. It refuses options that the backend does not support.
func (c config) withOptions(info driver.Info, opts []Option) (config, error) {
	inheritedNoWait, inheritedMaxWait := c.noWait, c.maxWait
	c.noWait, c.maxWait = false, 0
	for _, o := range opts {
		if o.set == nil {
			return c, driver.Invalidf("option: the zero Option")
		}
		if err := o.set(&c); err != nil {
			return c, err
		}
	}
	if !c.noWait && c.maxWait == 0 {
		c.noWait, c.maxWait = inheritedNoWait, inheritedMaxWait
	}
	if c.ttl == 0 {
		c.ttl = max(defaultTTL, info.MinTTL, info.SessionTTL)
		if info.MaxTTL > 0 {
			c.ttl = min(c.ttl, info.MaxTTL)
		}
	}
	return c, c.checkAgainst(info)
}

// checkAgainst returns an error if c requires more than the backend promises.
func (c config) checkAgainst(info driver.Info) error {
	longest := cmp.Or(info.MaxTTL, driver.LongestTTL)
	switch err := driver.CheckName(c.prefix + "x"); {
	case err != nil:
		return driver.Invalidf("Prefix: no name can begin with it: %w", err)
	case c.ttl < info.MinTTL:
		return driver.Invalidf("TTL: %v is shorter than %v, the minimum of this backend", c.ttl, info.MinTTL)
	case c.ttl < info.SessionTTL:
		return driver.Invalidf("TTL: %v is shorter than %v, for which the session of a dead holder lasts at least; set the driver's option Timeout instead",
			c.ttl, info.SessionTTL)
	case c.ttl > longest:
		return driver.Invalidf("TTL: %v is longer than %v, the maximum of this backend", c.ttl, longest)
	case c.lockDelay > longest-c.ttl:
		return driver.Invalidf("LockDelay: %v and the TTL of %v are more than %v, the maximum of this backend", c.lockDelay, c.ttl, longest)
	case c.lockDelay > 0 && info.Tenure == driver.TenureSession && info.SessionTTL <= c.lockDelay:
		return driver.Invalidf("LockDelay: this backend frees a lock %v after the session of its holder has gone silent, which is not longer than %v", info.SessionTTL, c.lockDelay)
	case c.detached && info.Tenure == driver.TenureSession:
		return driver.Invalidf("Detached: this backend frees the locks of a process that has ended")
	case c.detached && c.maxHold > 0:
		return driver.Invalidf("MaxHold with Detached: the end of such a hold is its TTL; give one of the two")
	case c.fencing > info.Fencing:
		return driver.Invalidf("RequireFencing: %v is required, and this backend has %v", c.fencing, info.Fencing)
	case c.fair && !info.Fair:
		return driver.Invalidf("Fair: this backend does not keep the order of arrival")
	case c.shared && c.slots > 0:
		return driver.Invalidf("Shared with Slots: a name is a read/write lock or a semaphore, not both")
	case c.shared && !info.Shared:
		return driver.Invalidf("Shared: this backend has no read/write locks")
	case c.noWait && c.maxWait > 0:
		return driver.Invalidf("MaxWait with NoWait: an acquisition waits for up to %v, or not at all; give one of the two", c.maxWait)
	case c.maxHold > 0 && c.minHold > c.maxHold:
		return driver.Invalidf("MinHold: %v is longer than the MaxHold of %v", c.minHold, c.maxHold)
	case c.minHold > driver.LongestTTL:
		return driver.Invalidf("MinHold: %v is longer than %v, the maximum of all backends", c.minHold, driver.LongestTTL)
	case c.slots > 0 && !info.Slots:
		return driver.Invalidf("Slots: this backend has no semaphores")
	}
	return nil
}
