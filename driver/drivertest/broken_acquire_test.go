package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

func infoMutants() []mutant {
	return []mutant{
		{
			name: "Info counts what is held", fails: []string{"Info/Constant"},
			make: func(w *world) func(*brokenDriver) {
				held := 0
				return func(b *brokenDriver) {
					b.onGrant = func(*lease) { held++ }
					b.info = func(i driver.Info) driver.Info {
						w.withLock(func() { i.Assumptions = append(slices.Clone(i.Assumptions), fmt.Sprint("held: ", held)) })
						return i
					}
				}
			},
		},
		mutateAcquire("the greatest TTL is excluded", "Info/TTLRange",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if req.TTL >= b.Info().MaxTTL {
					return nil, driver.ErrInvalid
				}
				return b.acquire(ctx, req)
			}),
		mutateAcquire("errors show the URL", "Info/NoSecret",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				l, err := b.acquire(ctx, req)
				if err != nil {
					return nil, fmt.Errorf("memory://me:hunter2@host: %w", err)
				}
				return l, nil
			}),
	}
}

func exclusionMutants() []mutant {
	return []mutant{
		{
			name: "a driver is reentrant", fails: []string{"Exclusion/SameDriver"},
			set: func(w *world, b *brokenDriver) {
				mine := make(map[string]*lease)
				b.onGrant = func(l *lease) { mine[l.req.Name] = l }
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					var l *lease
					w.withLock(func() { l = mine[req.Name] })
					if l != nil && l.released.Load() == 0 && req.NoWait && !req.Shared && req.Slots == 0 {
						return l, nil
					}
					return b.acquire(ctx, req)
				}
			},
		},
		{
			name: "a driver trusts what it remembers of a lock", fails: []string{"Exclusion/OtherDriver"},
			set: func(w *world, b *brokenDriver) {
				cached := make(map[string]bool)
				b.onRelease = func(ctx context.Context, l *lease) error {
					if !l.wanted.Load() {
						w.withLock(func() { cached[l.req.Name] = !l.req.Shared && l.req.Slots == 0 })
					}
					return l.release(ctx)
				}
				b.onClose = func() error {
					w.withLock(func() { clear(cached) })
					return b.inner.Close()
				}
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					known := false
					w.withLock(func() { known = cached[req.Name] })
					if req.NoWait && known {
						return b.fake(req), nil
					}
					return b.acquire(ctx, req)
				}
			},
		},
		{
			name: "a release frees the last hold of another process too", fails: []string{"Exclusion/Names"},
			make: func(w *world) func(*brokenDriver) {
				var last *lease
				return func(b *brokenDriver) {
					b.onGrant = func(l *lease) {
						last = l
					}
					b.onRelease = func(ctx context.Context, l *lease) error {
						w.mu.Lock()
						other := last
						w.mu.Unlock()
						if other.b != b && other.req.Name != l.req.Name {
							_ = other.release(ctx)
						}
						return l.release(ctx)
					}
				}
			},
		},
	}
}

// mapNames returns a mutant that maps names before they reach the store.
func mapNames(name string, change func(string) string, whySeveral string, fails ...string) mutant {
	return mutant{
		name: name, fails: fails, whySeveral: whySeveral,
		make: func(w *world) func(*brokenDriver) {
			original := make(map[string]string)
			return func(b *brokenDriver) {
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					w.mu.Lock()
					original[change(req.Name)] = req.Name
					req.Name = change(req.Name)
					w.mu.Unlock()
					return b.acquire(ctx, req)
				}
				b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
					st, err := b.inner.Status(ctx, change(name))
					st.Name = name
					return st, err
				}
				b.onBreak = func(ctx context.Context, name, id string) error {
					return b.inner.Break(ctx, change(name), id)
				}
				b.onWithdraw = func(ctx context.Context, name, id string) error {
					return b.inner.Withdraw(ctx, change(name), id)
				}
				b.onList = func(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
					return b.inner.List(ctx, "", func(st driver.Status) bool {
						st.Name = original[st.Name]
						return !strings.HasPrefix(st.Name, prefix) || yield(st)
					})
				}
			}
		},
	}
}

func nameMutants() []mutant {
	lower := func(s string) string {
		return strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			return r
		}, s)
	}
	return []mutant{
		mutateAcquire("names with a leading dot are rejected", "Names/Unusual",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if strings.HasPrefix(req.Name, ".") {
					return nil, driver.ErrInvalid
				}
				return b.acquire(ctx, req)
			}),
		mapNames("case is folded", lower, "in a List too, names differ by their case only",
			"Names/Case", "Inspect/ListPrefix"),
		mapNames("trailing space is cut off", func(s string) string { return strings.TrimRight(s, " \t\r\n") }, "",
			"Names/Space"),
		mapNames("a slash becomes an underscore", func(s string) string { return strings.ReplaceAll(s, "/", "_") }, "",
			"Names/Escaping"),
		mapNames("accents are composed", func(s string) string { return strings.ReplaceAll(s, "e\u0301", "\u00e9") }, "",
			"Names/Unicode"),
		mapNames("names are cut off at 255 bytes", func(s string) string { return s[:min(len(s), 255)] }, "",
			"Names/Longest"),
	}
}

func tryMutants() []mutant {
	return []mutant{
		mutateAcquire("NoWait waits a little", "Try/Held",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				l, err := b.acquire(ctx, req)
				st := w.status(req.Name)
				if errors.Is(err, driver.ErrHeld) && len(st.Holders) > 0 && st.Holders[0].Left > 5*time.Second {
					time.Sleep(time.Second)
				}
				return l, err
			}),
		{
			name: "NoWait does not find a lock that was never used", fails: []string{"Try/Free"},
			make: func(w *world) func(*brokenDriver) {
				used := make(map[string]bool)
				return func(b *brokenDriver) {
					b.onGrant = func(l *lease) {
						used[l.req.Name] = true
					}
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						w.mu.Lock()
						known := used[req.Name]
						w.mu.Unlock()
						if req.NoWait && !known {
							return nil, driver.ErrHeld
						}
						return b.acquire(ctx, req)
					}
				}
			},
		},
	}
}

// expireInProcess returns a mutant whose store ends no lease: a timer in the holder's process
// does.
func expireInProcess(name, fails string, stop func(b *brokenDriver, f func())) mutant {
	return mutant{
		name: name, fails: []string{fails, "Sever/DeadWaiter"},
		whySeveral: "a lease that was granted to a process out of reach has no timer at all",
		set: func(w *world, b *brokenDriver) {
			timers := make(map[*lease]*time.Timer)
			b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
				lasting := req
				lasting.TTL = 24 * time.Hour
				got, err := b.acquireAs(ctx, req, lasting)
				if err != nil {
					return nil, err
				}
				l := got.(*lease)
				w.mu.Lock()
				defer w.mu.Unlock()
				for other, timer := range timers { // the same attempt may have acquired again
					if other.grant.Token == l.grant.Token {
						timer.Stop()
					}
				}
				d := w.store.Open() // not affected by Sever or Close
				timers[l] = time.AfterFunc(req.TTL, func() {
					_ = d.Break(context.Background(), req.Name, req.ID)
				})
				return l, nil
			}
			b.renewEach(func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				w.mu.Lock()
				defer w.mu.Unlock()
				if sound.Err == nil {
					timers[l].Reset(l.req.TTL)
				}
				return sound
			})
			b.onRelease = func(ctx context.Context, l *lease) error {
				err := l.release(ctx)
				w.mu.Lock()
				defer w.mu.Unlock()
				if err == nil {
					timers[l].Stop()
				}
				return err
			}
			b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
				st, err := b.inner.Status(ctx, name)
				for i := range st.Holders {
					st.Holders[i].Left = min(st.Holders[i].Left, time.Second)
				}
				return st, err
			}
			stop(b, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, timer := range timers {
					timer.Stop()
				}
			})
		},
	}
}

func waitMutants() []mutant {
	return []mutant{
		mutateRequest("nobody is told that the lock is held", "Wait/TellsHeld",
			func(_ *world, req driver.Request) driver.Request {
				req.OnWait = nil
				return req
			}),
		mutateAcquire("those behind a request are told of it later", "Wait/TellsHeld",
			func(ctx context.Context, _ *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				l, err := b.acquire(ctx, req)
				time.AfterFunc(time.Millisecond, func() { req.NoteWait(nil) })
				return l, err
			}),
		{
			name: "waiters poll", fails: []string{"Wait/Release"},
			make: func(w *world) func(*brokenDriver) {
				freed := make(map[string]time.Time)
				return func(b *brokenDriver) {
					b.onRelease = func(ctx context.Context, l *lease) error {
						w.mu.Lock()
						freed[l.req.Name] = time.Now()
						w.mu.Unlock()
						return l.release(ctx)
					}
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						start := time.Now()
						l, err := b.acquire(ctx, req)
						w.mu.Lock()
						slow := err == nil && !req.NoWait && time.Now().Equal(freed[req.Name])
						w.mu.Unlock()
						if !slow {
							return l, err
						}
						const period = 7 * time.Millisecond // Wait/Release allows 5 ms
						timer := time.NewTimer(period - time.Since(start)%period)
						defer timer.Stop()
						select {
						case <-timer.C:
							return l, nil
						case <-ctx.Done():
							_ = l.(*lease).release(context.WithoutCancel(ctx))
							return nil, context.Cause(ctx)
						}
					}
				}
			},
		},
		mutateAcquire("waiters sleep through an expiry", "Wait/Expiry",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				before := w.status(req.Name)
				l, err := b.acquire(ctx, req)
				if err == nil && len(before.Holders) > 0 && l.(*lease).waited &&
					time.Since(l.(*lease).requestedAt) >= before.Holders[0].Left {
					return withhold(ctx, l)
				}
				return l, err
			}).alsoFailing("what a killed holder leaves behind is a lease that expires", "Wait/KilledHolder"),
		expireInProcess("the lease of a killed holder stays", "Wait/KilledHolder",
			func(b *brokenDriver, f func()) { b.onKill = f }),
	}
}

// leaveGhosts returns a mutant in which some waiters whose wait has failed stay in the queue: the
// next release is lost on them. The function becomes decides which.
func leaveGhosts(name, fails string,
	becomes func(ctx context.Context, w *world, req driver.Request, waited time.Duration, err error) bool) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(w *world, b *brokenDriver) {
			b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
				start := time.Now()
				l, err := b.acquire(ctx, req)
				if err != nil && !req.NoWait && becomes(ctx, w, req, time.Since(start), err) {
					w.setFlag(req.Name, true)
				}
				return l, err
			}
			b.onRelease = func(ctx context.Context, l *lease) error {
				if w.setFlag(l.req.Name, false) {
					return nil
				}
				return l.release(ctx)
			}
		},
	}
}

func cancelMutants() []mutant {
	someTime := time.Millisecond
	refusals := []error{driver.ErrHeld, driver.ErrKind, driver.ErrLost}
	return []mutant{
		mutateAcquire("a cancelled wait does not tell the cause", "Cancel/Cause",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				early := ctx.Err() != nil
				l, err := b.acquire(ctx, req)
				if err != nil && !early && ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return l, err
			}).alsoFailing("the error that it replaces also said that the store did not answer", "Sever/Unavailable"),
		mutateAcquire("a free lock is granted without a look at the context", "Cancel/Before",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if ctx.Err() == nil {
					return b.acquire(ctx, req)
				}
				req.NoWait = true
				l, err := b.acquire(context.WithoutCancel(ctx), req)
				if err != nil {
					return nil, context.Cause(ctx)
				}
				return l, nil
			}),
		mutateAcquire("a lock is taken and then the context looked at", "Cancel/Before",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if ctx.Err() == nil {
					return b.acquire(ctx, req)
				}
				req.NoWait = true
				_, _ = b.acquire(context.WithoutCancel(ctx), req)
				return nil, context.Cause(ctx)
			}),
		leaveGhosts("a waiter that gave up gets the lock", "Cancel/LeavesNothing",
			func(ctx context.Context, w *world, req driver.Request, waited time.Duration, _ error) bool {
				return ctx.Err() != nil && waited >= someTime && !req.Shared && len(w.status(req.Name).Waiters) == 0
			}),
		leaveGhosts("a waiter that gave up jams the queue", "Cancel/DoesNotJam",
			func(ctx context.Context, w *world, req driver.Request, waited time.Duration, _ error) bool {
				return ctx.Err() != nil && waited >= someTime && !req.Shared && len(w.status(req.Name).Waiters) > 0
			}),
		leaveGhosts("a cancellation is taken for a refusal by its cause", "Cancel/LeavesNothing",
			func(ctx context.Context, _ *world, _ driver.Request, _ time.Duration, err error) bool {
				return ctx.Err() != nil && slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
			}),
		mutateAcquire("a grant that meets a cancellation is left behind", "Cancel/RacesGrant",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
				defer cancel(nil)
				stop := context.AfterFunc(ctx, func() {
					mine := func(h driver.Holding) bool { return h.ID == req.ID }
					if !slices.ContainsFunc(w.status(req.Name).Holders, mine) {
						cancel(context.Cause(ctx))
					}
				})
				defer stop()
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				l, err := b.acquire(detached, req)
				if err == nil && ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return l, err
			}),
		mutateAcquire("a grant that comes after the cancellation counts", "Cancel/RacesGrant",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				start, early := time.Now(), ctx.Err() != nil
				l, err := b.acquire(ctx, req)
				if !early && ctx.Err() != nil && time.Now().Equal(start) && len(w.status(req.Name).Holders) == 0 {
					return b.acquire(context.WithoutCancel(ctx), req)
				}
				return l, err
			}),
	}
}

// serveLastFirst returns a mutant that serves the last waiter first, if its request is of a
// kind: waiters that are granted earlier release the lock again.
func serveLastFirst(name, fails string, kind func(driver.Request) bool) mutant {
	return mutant{
		name: name, fails: []string{fails},
		make: func(w *world) func(*brokenDriver) {
			came := 0
			waiting := make(map[string][]int)
			return func(b *brokenDriver) {
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if !kind(req) || req.NoWait {
						return b.acquire(ctx, req)
					}
					w.mu.Lock()
					came++
					mine := came
					waiting[req.Name] = append(waiting[req.Name], mine)
					w.mu.Unlock()
					defer func() {
						w.mu.Lock()
						defer w.mu.Unlock()
						waiting[req.Name] = slices.DeleteFunc(waiting[req.Name], func(n int) bool { return n == mine })
					}()
					for {
						l, err := b.acquire(ctx, req)
						w.mu.Lock()
						last := slices.Max(waiting[req.Name]) == mine || len(waiting[req.Name]) < 3
						w.mu.Unlock()
						if err != nil || last {
							return l, err
						}
						_ = l.Release(ctx)
					}
				}
			}
		},
	}
}

// allowBarging returns a mutant that lets newcomers take a lock that is being released, if
// their request is of a kind.
func allowBarging(name, fails string, kind func(driver.Request) bool) mutant {
	return mutant{
		name: name, fails: []string{fails},
		make: func(w *world) func(*brokenDriver) {
			loose := make(map[string]*lease)
			return func(b *brokenDriver) {
				b.onRelease = func(ctx context.Context, l *lease) error {
					if !kind(l.req) || len(w.status(l.req.Name).Waiters) == 0 || l.released.Load() > 0 {
						return l.release(ctx)
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					loose[l.req.Name] = l
					time.AfterFunc(100*time.Microsecond, func() {
						w.mu.Lock()
						defer w.mu.Unlock()
						if loose[l.req.Name] == l {
							delete(loose, l.req.Name)
							_ = l.release(context.Background())
						}
					})
					return nil
				}
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					w.mu.Lock()
					l := loose[req.Name]
					if l != nil && !req.Shared && req.Slots == 0 {
						delete(loose, req.Name)
						l.grant.Token++
						w.mu.Unlock()
						return l, nil
					}
					w.mu.Unlock()
					return b.acquire(ctx, req)
				}
			}
		},
	}
}

func fairMutants() []mutant {
	waits := func(req driver.Request) bool { return !req.Shared && req.Slots == 0 && !req.NoWait }
	return []mutant{
		serveLastFirst("the last that came is the first", "Fair/Order", waits),
		allowBarging("newcomers slip in", "Fair/NoBarging", waits),
	}
}

func closeMutants() []mutant {
	return []mutant{
		{
			name: "waiters notice Close after a second", fails: []string{"Close/WakesWaiters"},
			set: func(_ *world, b *brokenDriver) {
				var closed atomic.Bool
				b.onClose = func() error {
					if !closed.Swap(true) {
						time.AfterFunc(time.Second, func() { _ = b.inner.Close() })
					}
					return nil
				}
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if closed.Load() {
						return nil, driver.ErrClosed
					}
					return b.acquire(ctx, req)
				}
			},
		},
		mutateAcquire("waiters end with any error on Close", "Close/WakesWaiters",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				l, err := b.acquire(ctx, req)
				// Without a holder, the request came after Close.
				if errors.Is(err, driver.ErrClosed) && len(w.status(req.Name).Holders) > 0 {
					return nil, errors.New("use of closed network connection")
				}
				return l, err
			}),
		leaveGhosts("a waiter that Close ended gets the lock", "Close/WithdrawsWaiters",
			func(ctx context.Context, w *world, req driver.Request, _ time.Duration, err error) bool {
				return errors.Is(err, driver.ErrClosed) && ctx.Err() == nil && len(w.status(req.Name).Holders) > 0
			}),
		{
			name: "a grant that meets Close is left behind", fails: []string{"Close/RacesGrant"},
			set: func(_ *world, b *brokenDriver) {
				closed := make(chan struct{})
				b.onClose = sync.OnceValue(func() error {
					close(closed)
					return b.inner.Close()
				})
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					l, err := b.acquire(ctx, req)
					select {
					case <-closed:
						return nil, driver.ErrClosed
					case <-time.After(time.Millisecond):
						return l, err
					}
				}
			},
		},
		{
			name: "a closed driver says something odd", fails: []string{"Close/EndsAcquire"},
			set: func(_ *world, b *brokenDriver) {
				var closed atomic.Bool
				b.onClose = func() error {
					closed.Store(true)
					return b.inner.Close()
				}
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if closed.Load() {
						return nil, errors.New("invalid memory address")
					}
					return b.acquire(ctx, req)
				}
			},
		},
		{
			name: "the second Close fails", fails: []string{"Close/EndsAcquire"},
			set: func(_ *world, b *brokenDriver) {
				closed := false
				b.onClose = func() error {
					if closed {
						return driver.ErrClosed
					}
					closed = true
					return b.inner.Close()
				}
			},
		},
		expireInProcess("the lease of a closed driver stays", "Close/LeaseLapses", func(b *brokenDriver, f func()) {
			b.onClose = func() error {
				f()
				return b.inner.Close()
			}
		}),
		{
			name: "Close frees detached leases", fails: []string{"Close/DetachedStays"},
			set: func(_ *world, b *brokenDriver) {
				var all []*lease
				b.onGrant = func(l *lease) {
					all = append(all, l)
				}
				b.onClose = func() error {
					for _, l := range all {
						_ = l.release(context.Background())
					}
					return b.inner.Close()
				}
			},
		},
		{
			name: "the store frees detached leases of dead processes", fails: []string{"Close/DetachedSurvivesKill"},
			set: func(_ *world, b *brokenDriver) {
				b.onGrant = func(l *lease) { b.onKill = func() { _ = l.release(context.Background()) } }
			},
		},
		{
			name: "a goroutine goes on after Close", fails: []string{"Close/LeavesNoGoroutine"},
			make: func(w *world) func(*brokenDriver) {
				stop := make(chan struct{})
				w.t.Cleanup(func() { close(stop) })
				return func(b *brokenDriver) {
					b.onGrant = func(*lease) { go func() { <-stop }() }
				}
			},
		},
	}
}
