package drivertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// mutateGrant returns a mutant that changes grants.
func mutateGrant(name, fails string, shape func(*lease)) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(_ *world, b *brokenDriver) { b.onGrant = shape },
	}
}

// mutateRequest returns a mutant that changes requests.
func mutateRequest(name, fails string, shape func(*world, driver.Request) driver.Request) mutant {
	return mutateAcquire(name, fails,
		func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
			return b.acquireAs(ctx, req, shape(w, req))
		})
}

// alsoFailing returns m with more clauses that it fails, and why it fails them.
func (m mutant) alsoFailing(whySeveral string, fails ...string) mutant {
	m.whySeveral, m.fails = whySeveral, append(m.fails, fails...)
	return m
}

// mutateRenewal returns a mutant that changes the answers of renewals, one by one.
func mutateRenewal(name, fails string, shape func(context.Context, *lease, driver.Renewal) driver.Renewal) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(_ *world, b *brokenDriver) { b.renewEach(shape) },
	}
}

// mutateRelease returns a mutant with a Release of its own.
func mutateRelease(name, fails string, release func(context.Context, *lease) error) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(_ *world, b *brokenDriver) { b.onRelease = release },
	}
}

// others returns the holds of l's lock except l's own.
func (l *lease) others() []driver.Holding {
	return slices.DeleteFunc(l.b.world.status(l.req.Name).Holders,
		func(h driver.Holding) bool { return h.ID == l.req.ID && h.Token == l.grant.Token })
}

// breakOthers breaks the holds that others have of l's lock.
func (l *lease) breakOthers() {
	d := l.b.world.store.Open()
	defer d.Close()
	for _, h := range l.others() {
		_ = d.Break(context.Background(), l.req.Name, h.ID)
	}
}

// breakAll breaks all holds of l's lock.
func (l *lease) breakAll() {
	d := l.b.world.store.Open()
	defer d.Close()
	for _, h := range l.b.world.status(l.req.Name).Holders {
		_ = d.Break(context.Background(), l.req.Name, h.ID)
	}
}

func leaseMutants() []mutant {
	return []mutant{
		mutateRequest("the store rounds TTLs down", "Lease/NotEarly", func(_ *world, req driver.Request) driver.Request {
			if !req.Detached {
				req.TTL -= req.TTL / 20
			}
			return req
		}).alsoFailing("that a holder that is cut off knows first is the same promise", "Sever/HolderKnowsFirst"),
		{
			name: "NoWait sees no expiry until a sweeper came", fails: []string{"Lease/NotLate"},
			make: func(w *world) func(*brokenDriver) {
				stale := make(map[string]time.Time) // when the sweeper would free a lock
				forget := func(name string) {
					w.mu.Lock()
					defer w.mu.Unlock()
					delete(stale, name)
				}
				return func(b *brokenDriver) {
					b.onGrant = func(l *lease) {
						delete(stale, l.req.Name)
						if !l.req.Shared && l.req.Slots == 0 {
							stale[l.req.Name] = l.grantedAt.Add(l.req.TTL + time.Second)
						}
					}
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						w.mu.Lock()
						until, ok := stale[req.Name]
						w.mu.Unlock()
						if ok && req.NoWait && req.Slots == 0 && time.Now().Before(until) {
							return nil, driver.ErrHeld
						}
						return b.acquire(ctx, req)
					}
					b.renewEach(func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
						forget(l.req.Name)
						return sound
					})
					b.onRelease = func(ctx context.Context, l *lease) error {
						forget(l.req.Name)
						return l.release(ctx)
					}
					b.onBreak = func(ctx context.Context, name, id string) error {
						forget(name)
						return b.inner.Break(ctx, name, id)
					}
					b.onClose = func() error {
						w.mu.Lock()
						clear(stale)
						w.mu.Unlock()
						return b.inner.Close()
					}
				}
			},
		},
		mutateGrant("Start is read after the answer came", "Lease/Start", func(l *lease) {
			if l.req.TTL > 10*time.Second && l.req.MinHold == 0 {
				l.grant.Start = l.grant.Start.Add(5 * time.Millisecond)
			}
		}),
		mutateGrant("Start is when the wait began", "Lease/StartAfterWait", func(l *lease) {
			l.grant.Start = l.grant.Start.Add(l.requestedAt.Sub(l.grantedAt))
		}),
		mutateRenewal("a renewal changes the grant", "Lease/GrantIsConstant",
			func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				if sound.Err == nil {
					l.grant.Start = sound.Start
				}
				return sound
			}),
		{
			name: "OnLost is called by Release", fails: []string{"Lease/LostOnlyIfLost"},
			set: func(_ *world, b *brokenDriver) {
				b.onRelease = func(ctx context.Context, l *lease) error {
					err := l.release(ctx)
					if err == nil && l.released.Load() == 1 && l.req.OnLost != nil {
						l.req.OnLost(driver.ErrLost)
					}
					return err
				}
			},
		},
	}
}

// reviveOnRenew returns a mutant whose renewal takes the lock again if it is free.
func reviveOnRenew(name, fails string, when func(*lease) bool) mutant {
	return mutateRenewal(name, fails, func(ctx context.Context, l *lease, sound driver.Renewal) driver.Renewal {
		if sound.Err == nil || l.Lease == nil || l.req.Shared || l.req.Slots > 0 || !when(l) {
			return sound
		}
		req := l.req
		req.NoWait = true
		again, err := l.b.inner.Acquire(ctx, req)
		if err != nil {
			return sound
		}
		l.Lease = again
		return driver.Renewal{Start: again.Grant().Start}
	})
}

// renewAllMutants are sessions whose renewals of all leases are broken.
func renewAllMutants() []mutant {
	mutate := func(name, clause string, renewAll func(ctx context.Context, b *brokenDriver) []driver.Renewal) mutant {
		return mutant{
			name: name, fails: []string{clause}, base: newSession,
			set: func(_ *world, b *brokenDriver) {
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					if len(due) == 0 {
						return renewAll(ctx, b)
					}
					return b.renew(ctx, due)
				}
			},
		}
	}
	late := mutate("a renewal of all leases tells nobody of a loss", "Renew/AllTells", func(ctx context.Context, b *brokenDriver) []driver.Renewal {
		start := driver.Now()
		_, err := b.inner.Status(ctx, "any") // it only asks whether the store answers
		return []driver.Renewal{{Start: start, Err: err}}
	})
	renewAlone := late.set
	late.set = func(w *world, b *brokenDriver) {
		renewAlone(w, b)
		b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			if onLost := req.OnLost; onLost != nil { // the message of the store takes its time
				req.OnLost = func(err error) { time.AfterFunc(time.Millisecond, func() { onLost(err) }) }
			}
			return b.acquire(ctx, req)
		}
	}
	return []mutant{
		mutate("a renewal of all leases counts from long before", "Renew/All", func(ctx context.Context, b *brokenDriver) []driver.Renewal {
			got := b.renew(ctx, nil)
			got[0].Start = got[0].Start.Add(-time.Second)
			return got
		}),
		mutate("a renewal of all leases asks nobody", "Sever/RenewAllReturns", func(ctx context.Context, b *brokenDriver) []driver.Renewal {
			if got := b.renew(ctx, nil); got[0].Err == nil {
				return got
			}
			return []driver.Renewal{{Start: driver.Now()}}
		}),
		late,
	}
}

func renewMutants() []mutant {
	type answers = []driver.Renewal
	mutateBatch := func(name string, change func([]driver.Lease, answers) answers) mutant {
		return mutant{
			name: name, fails: []string{"Renew/Batch"},
			set: func(_ *world, b *brokenDriver) {
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					got := b.renew(ctx, due)
					if len(due) > 1 {
						got = change(due, got)
					}
					return got
				}
			},
		}
	}
	return append(renewAllMutants(), []mutant{
		{
			name: "a second renewal is not told to the store", fails: []string{"Renew/Extends"},
			set: func(_ *world, b *brokenDriver) {
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					if len(due) == 1 {
						if l := due[0].(*lease); l.renewed.Load() == 1 && l.req.TTL < 10*time.Second {
							l.renewed.Add(1)
							return []driver.Renewal{{Start: driver.Now()}}
						}
					}
					return b.renew(ctx, due)
				}
			},
		},
		mutateRenewal("a renewal adds a TTL to what is left", "Renew/DoesNotAdd",
			func(ctx context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				if sound.Err == nil && l.renewed.Load() > 1 {
					req := l.req // acquired again, for the sum of the TTLs
					req.TTL = time.Duration(l.renewed.Load()) * l.req.TTL
					if again, err := l.b.inner.Acquire(ctx, req); err == nil {
						l.Lease = again
					}
				}
				return sound
			}),
		mutateRenewal("a renewal answers with the Start of the grant", "Renew/Start",
			func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				if sound.Err == nil {
					sound.Start = l.grant.Start
				}
				return sound
			}),
		mutateRenewal("a refused renewal has a Start", "Renew/Start",
			func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				if sound.Err != nil {
					sound.Start = driver.Now()
				}
				return sound
			}),
		mutateBatch("a batch is answered in the order of names", func(due []driver.Lease, got answers) answers {
			order := make([]int, len(due))
			for i := range order {
				order[i] = i
			}
			slices.SortFunc(order, func(i, j int) int {
				return strings.Compare(due[i].(*lease).req.Name, due[j].(*lease).req.Name)
			})
			sorted := make(answers, len(due))
			for i, j := range order {
				sorted[i] = got[j]
			}
			return sorted
		}),
		mutateBatch("a batch is answered for its good leases", func(_ []driver.Lease, got answers) answers {
			return slices.DeleteFunc(got, func(r driver.Renewal) bool { return r.Err != nil })
		}),
		mutateBatch("one lost lease loses its batch", func(_ []driver.Lease, got answers) answers {
			if i := slices.IndexFunc(got, func(r driver.Renewal) bool { return r.Err != nil }); i >= 0 {
				return slices.Repeat(got[i:i+1], len(got))
			}
			return got
		}),
		{
			name: "a released lease is renewed back to life", fails: []string{"Renew/NotReleased"},
			set: func(_ *world, b *brokenDriver) {
				sound := reviveOnRenew("", "", func(l *lease) bool { return l.released.Load() > 0 }).setter(nil)
				sound(b)
				each := b.onRenew
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					if len(due) > 1 {
						return b.renew(ctx, due)
					}
					return each(ctx, due)
				}
			},
		},
		reviveOnRenew("an expired lease is renewed back to life", "Renew/NotExpired",
			func(l *lease) bool { return l.released.Load() == 0 && l.ended() }),
		{
			name: "a renewal looks at the name only", fails: []string{"Renew/NotExpired"},
			set: func(_ *world, b *brokenDriver) {
				cut := false
				b.onSever = func() { cut = true }
				b.renewEach(func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
					if errors.Is(sound.Err, driver.ErrLost) && l.ended() && len(l.others()) > 0 && !l.req.Shared && !cut {
						return driver.Renewal{Start: driver.Now()}
					}
					return sound
				})
			},
		},
	}...)
}

func releaseMutants() []mutant {
	return []mutant{
		mutateRelease("a late release frees all holders", "Release/LateIsHarmless", func(ctx context.Context, l *lease) error {
			if l.released.Load() == 0 && l.ended() {
				l.breakOthers()
			}
			return l.release(ctx)
		}),
		mutateRelease("a late release says nothing", "Release/SaysLost", func(ctx context.Context, l *lease) error {
			if err := l.release(ctx); !errors.Is(err, driver.ErrLost) || !l.ended() {
				return err
			}
			return nil
		}),
		mutateRelease("a second release says that the lock is lost", "Release/TwiceIsHarmless", func(ctx context.Context, l *lease) error {
			if l.released.Load() > 0 && l.req.MinHold == 0 {
				return driver.ErrLost
			}
			return l.release(ctx)
		}),
		{
			name: "a second release frees all holders", fails: []string{"Release/TwiceIsHarmless", "Answer/ReleaseLost"},
			whySeveral: "a release whose answer was lost is said twice",
			set: func(_ *world, b *brokenDriver) {
				b.onRelease = func(ctx context.Context, l *lease) error {
					if l.released.Load() > 0 {
						l.breakOthers()
					}
					return l.release(ctx)
				}
			},
		},
	}
}

// mutateToken returns a mutant that makes tokens of its own. The function token sees all grants
// of the name so far.
func mutateToken(name string, fails []string, token func(l *lease, before []*lease) uint64) mutant {
	return mutant{
		name: name, fails: fails,
		make: func(w *world) func(*brokenDriver) {
			granted := make(map[string][]*lease)
			return func(b *brokenDriver) {
				b.onGrant = func(l *lease) {
					before := granted[l.req.Name]
					granted[l.req.Name] = append(before, l)
					if len(before) > 0 && before[len(before)-1].req.ID != l.req.ID {
						l.grant.Token = token(l, before)
					}
				}
			}
		},
	}
}

func fencingMutants() []mutant {
	plain := func(l *lease) bool { return !l.req.Shared && l.req.Slots == 0 }
	last := func(before []*lease) *lease { return before[len(before)-1] }
	restarted := mutant{
		name: "a restart begins at 1 again", fails: []string{"Fencing/AcrossRestart"},
		make: func(w *world) func(*brokenDriver) {
			down := uint64(0)
			w.restart = func() { down = uint64(time.Now().UnixMicro()) }
			return func(b *brokenDriver) { b.onGrant = func(l *lease) { l.grant.Token -= down } }
		},
	}
	return []mutant{
		mutateToken("the third hold of a driver has the token of the second", []string{"Fencing/Increases"},
			func(l *lease, before []*lease) uint64 {
				n := len(before)
				if plain(l) && n >= 2 && before[n-1].b == l.b && before[n-2].b == l.b && before[n-1].released.Load() > 0 {
					return before[n-1].grant.Token
				}
				return l.grant.Token
			}),
		mutateToken("a driver's first token comes from a replica that lags", []string{"Fencing/Increases"},
			func(l *lease, before []*lease) uint64 {
				mine := slices.ContainsFunc(before, func(other *lease) bool { return other.b == l.b })
				if plain(l) && !mine && len(before) >= 2 && last(before).b == before[0].b && last(before).released.Load() > 0 {
					return before[0].grant.Token
				}
				return l.grant.Token
			}),
		mutateToken("an expired hold does not count", []string{"Fencing/AfterExpiry"}, func(l *lease, before []*lease) uint64 {
			if plain(l) && last(before).released.Load() == 0 && last(before).ended() {
				return last(before).grant.Token
			}
			return l.grant.Token
		}),
		mutateToken("the counter lapses when idle", []string{"Fencing/AfterIdle"}, func(l *lease, before []*lease) uint64 {
			if time.Since(last(before).grantedAt) > 10*time.Minute {
				return 1
			}
			return l.grant.Token
		}),
		restarted,
		mutateRequest("tokens are promised and not reserved", "Fencing/Reserved", func(_ *world, req driver.Request) driver.Request {
			req.Tokens = 1
			return req
		}).shapingGrants(func(l *lease) { l.grant.Tokens = l.req.Tokens }).
			alsoFailing("nor is there a bound", "Fencing/Bounded"),
		mutateGrant("as many tokens are reserved as are asked for", "Fencing/Bounded", func(l *lease) { l.grant.Tokens = l.req.Tokens }),
		mutateGrant("more tokens are reserved than asked for", "Fencing/Reserved", func(l *lease) { l.grant.Tokens += 10 }).
			alsoFailing("so the bound is exceeded, too", "Fencing/Bounded"),
	}
}

// shapingGrants returns m with a change of grants, which sees the request as the caller made
// it.
func (m mutant) shapingGrants(shape func(*lease)) mutant {
	inner := m
	m.make = func(w *world) func(*brokenDriver) {
		setUp := inner.setter(w)
		return func(b *brokenDriver) {
			setUp(b)
			acquire := b.onAcquire
			b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
				l, err := acquire(ctx, req)
				if err == nil {
					shape(l.(*lease))
				}
				return l, err
			}
		}
	}
	return m
}

func answerMutants() []mutant {
	return []mutant{
		{
			name: "a renewal that is asked again comes too late", fails: []string{"Answer/RenewLost"},
			set: func(_ *world, b *brokenDriver) {
				at := make(map[*lease]time.Time)
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
					if len(due) != 1 {
						return b.renew(ctx, due)
					}
					l := due[0].(*lease)
					if last, ok := at[l]; ok && last.Equal(time.Now()) && l.req.TTL > 10*time.Second {
						return []driver.Renewal{{Err: driver.ErrLost}}
					}
					at[l] = time.Now()
					return b.renew(ctx, due)
				}
			},
		},
	}
}

// ignoreContext returns a mutant that hangs in a call while it is severed, even if the
// context ends.
func ignoreContext(name, fails string, set func(b *brokenDriver, ctx func(context.Context) context.Context)) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(_ *world, b *brokenDriver) {
			var cut atomic.Bool
			b.onSever, b.onHeal = func() { cut.Store(true) }, func() { cut.Store(false) }
			set(b, func(ctx context.Context) context.Context {
				if cut.Load() {
					return context.WithoutCancel(ctx)
				}
				return ctx
			})
		},
	}
}

func severMutants() []mutant {
	return []mutant{
		{
			name: "the store ends the leases of a severed driver early", fails: []string{"Sever/HolderKnowsFirst"},
			set: func(w *world, b *brokenDriver) {
				var all []*lease
				b.onGrant = func(l *lease) { all = append(all, l) }
				b.onSever = func() {
					time.AfterFunc(100*time.Millisecond, func() {
						d := w.store.Open()
						defer d.Close()
						for _, l := range all {
							_ = d.Break(context.Background(), l.req.Name, l.req.ID)
						}
					})
				}
			},
		},
		ignoreContext("Acquire waits for a dead store", "Sever/AcquireReturns",
			func(b *brokenDriver, detach func(context.Context) context.Context) {
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if req.TTL < 10*time.Second {
						ctx = detach(ctx)
					}
					return b.acquire(ctx, req)
				}
			}).alsoFailing("an Acquire that does not return tells nothing", "Sever/Unavailable"),
		mutateAcquire("a dead store is as silent as a held lock", "Sever/Unavailable",
			func(ctx context.Context, _ *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				l, err := b.acquire(ctx, req)
				if err != nil && ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				return l, err
			}),
		mutateRequest("whoever asks is told that the lock is held", "Sever/Unavailable",
			func(_ *world, req driver.Request) driver.Request {
				req.NoteWait(nil)
				return req
			}),
		ignoreContext("a wait that is given up goes on for a dead store", "Sever/CancelWaiter",
			func(b *brokenDriver, detach func(context.Context) context.Context) {
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					l, err := b.acquire(ctx, req)
					if detach(ctx) != ctx && req.TTL < 10*time.Second && len(b.world.status(req.Name).Holders) > 0 {
						time.Sleep(driver.CancelTimeout + time.Millisecond)
					}
					return l, err
				}
			}),
		mutateRequest("a lease begins when its holder asks for more", "Sever/DeadWaiter",
			func(w *world, req driver.Request) driver.Request {
				if len(w.status(req.Name).Holders) > 0 && !req.NoWait && req.Slots == 0 && req.TTL < 10*time.Second {
					req.TTL = time.Hour
				}
				return req
			}),
		ignoreContext("Renew waits for a dead store", "Sever/RenewReturns",
			func(b *brokenDriver, detach func(context.Context) context.Context) {
				b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal { return b.renew(detach(ctx), due) }
			}),
		ignoreContext("SetHolder waits for a dead store", "Sever/HolderReturns",
			func(b *brokenDriver, detach func(context.Context) context.Context) {
				b.onHolder = func(ctx context.Context, l *lease, h driver.Holder) error {
					return l.Lease.SetHolder(detach(ctx), h)
				}
			}),
		ignoreContext("Release waits for a dead store", "Sever/ReleaseReturns",
			func(b *brokenDriver, detach func(context.Context) context.Context) {
				b.onRelease = func(ctx context.Context, l *lease) error { return l.release(detach(ctx)) }
			}),
		ignoreContext("Status waits for a dead store", "Sever/StatusReturns",
			func(b *brokenDriver, detach func(context.Context) context.Context) {
				b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
					return b.inner.Status(detach(ctx), name)
				}
			}),
		{
			name: "a request that was given up is executed late", fails: []string{"Stall/GivenUp"},
			set: func(w *world, b *brokenDriver) {
				var late []driver.Request
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					if b.severed.Load() {
						w.withLock(func() { late = append(late, req) })
					}
					return b.acquire(ctx, req)
				}
				b.onDeliver = func() {
					w.withLock(func() {
						for _, req := range late {
							req.NoWait = true
							_, _ = w.store.Open().Acquire(context.Background(), req) // nobody gets the lease
						}
					})
				}
			},
		},
		{
			name: "a driver does not get over a cut", fails: []string{"Sever/Healed"},
			set: func(_ *world, b *brokenDriver) {
				var cut atomic.Bool
				b.onSever = func() { cut.Store(true) }
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					l, err := b.acquire(ctx, req)
					if err == nil && cut.Load() {
						_ = l.Release(ctx)
						return nil, errors.New("broken pipe")
					}
					return l, err
				}
			},
		},
	}
}
