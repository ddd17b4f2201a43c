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

// mutateAcquire returns a mutant with an Acquire of its own.
func mutateAcquire(name, fails string,
	acquire func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error)) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(w *world, b *brokenDriver) {
			b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
				return acquire(ctx, w, b, req)
			}
		},
	}
}

func sharedMutants() []mutant {
	return []mutant{
		{
			name: "a driver has one reader at a time", fails: []string{"Shared/ReadersTogether"},
			set: func(w *world, b *brokenDriver) {
				reading := make(map[string]bool)
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					w.mu.Lock()
					busy := reading[req.Name] && req.Shared
					w.mu.Unlock()
					if busy {
						return nil, driver.ErrHeld
					}
					l, err := b.acquire(ctx, req)
					if err == nil && req.Shared {
						w.mu.Lock()
						reading[req.Name] = true
						w.mu.Unlock()
					}
					return l, err
				}
				b.onRelease = func(ctx context.Context, l *lease) error {
					w.mu.Lock()
					reading[l.req.Name] = false
					w.mu.Unlock()
					return l.release(ctx)
				}
			},
		},
		mutateAcquire("a reader is let in to a writer", "Shared/WriterExcludesReaders",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				st := w.status(req.Name)
				if req.Shared && req.NoWait && st.Slots == 0 && len(st.Holders) > 0 && !st.Shared {
					return b.fake(req), nil
				}
				return b.acquire(ctx, req)
			}),
		{
			name: "the first reader that leaves lets a writer in", fails: []string{"Shared/ReadersExcludeWriter"},
			set: func(w *world, b *brokenDriver) {
				b.onRelease = func(ctx context.Context, l *lease) error {
					w.setFlag(l.req.Name, l.req.Shared)
					return l.release(ctx)
				}
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					left := false
					w.withLock(func() { left = w.flags[req.Name] })
					if left && !req.Shared && req.NoWait {
						return b.fake(req), nil
					}
					return b.acquire(ctx, req)
				}
			},
		},
		mutateAcquire("a writer is not woken by the last of several readers", "Shared/WriterWaits",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				before := w.status(req.Name)
				l, err := b.acquire(ctx, req)
				if err == nil && !req.Shared && before.Shared && len(before.Holders) > 1 {
					return withhold(ctx, l)
				}
				return l, err
			}),
		mutateAcquire("a writer that is done wakes one reader", "Shared/ReadersResume",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				before := w.status(req.Name)
				l, err := b.acquire(ctx, req)
				if err == nil && req.Shared && len(before.Holders) > 0 && !before.Shared && w.setFlag(req.Name, true) {
					return withhold(ctx, l)
				}
				return l, err
			}),
		mutateAcquire("readers do not see a writer that waits", "Shared/WriterNotStarved",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if req.NoWait || req.Shared || !w.status(req.Name).Shared {
					return b.acquire(ctx, req)
				}
				try := req
				try.NoWait = true
				for {
					l, err := b.acquire(ctx, try)
					if !errors.Is(err, driver.ErrHeld) {
						return l, err
					}
					time.Sleep(time.Millisecond)
				}
			}),
		mutateAcquire("readers wait for a writer that gave up", "Shared/WriterGivesUp",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				before := w.status(req.Name)
				l, err := b.acquire(ctx, req)
				if err == nil && req.Shared && before.Shared && len(before.Waiters) > 0 && !before.Waiters[0].Shared {
					return withhold(ctx, l)
				}
				return l, err
			}),
		mutateRenewal("readers share one TTL", "Shared/DeadReader",
			func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				expired := errors.Is(sound.Err, driver.ErrLost) && l.released.Load() == 0 && l.ended()
				if expired && l.req.Shared && len(l.others()) > 0 {
					return driver.Renewal{Start: driver.Now()}
				}
				return sound
			}),
		mutateToken("readers that join have the token of the first", []string{"Shared/UniqueTokens"},
			func(l *lease, before []*lease) uint64 {
				if last := before[len(before)-1]; l.req.Shared && last.req.Shared && last.released.Load() == 0 {
					return last.grant.Token
				}
				return l.grant.Token
			}),
	}
}

func slotsMutants() []mutant {
	return []mutant{
		mutateAcquire("a semaphore of three has room for two", "Slots/Full",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if req.Slots == 3 && len(w.status(req.Name).Holders) == 2 {
					return nil, driver.ErrHeld
				}
				return b.acquire(ctx, req)
			}),
		{
			name: "a driver that has a slot gets another", fails: []string{"Slots/Full"},
			set: func(w *world, b *brokenDriver) {
				has := make(map[string]bool)
				b.onGrant = func(l *lease) {
					has[l.req.Name] = l.req.Slots > 0
				}
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					w.mu.Lock()
					more := has[req.Name] && req.NoWait && w.status(req.Name).Slots == req.Slots
					w.mu.Unlock()
					if more {
						return b.fake(req), nil
					}
					return b.acquire(ctx, req)
				}
			},
		},
		mutateAcquire("a waiter for a slot is not woken", "Slots/Full",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				before := w.status(req.Name)
				l, err := b.acquire(ctx, req)
				if err == nil && req.Slots > 0 && len(before.Holders) == req.Slots {
					return withhold(ctx, l)
				}
				return l, err
			}),
		{
			name: "a release gives up all slots of the driver", fails: []string{"Slots/ReleaseFreesOne"},
			set: func(w *world, b *brokenDriver) {
				var all []*lease
				b.onGrant = func(l *lease) { all = append(all, l) }
				b.onRelease = func(ctx context.Context, l *lease) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					for _, other := range all {
						if other.req.Name == l.req.Name && l.req.Slots > 0 {
							_ = other.release(ctx)
						}
					}
					return l.release(ctx)
				}
			},
		},
		mutateRequest("a semaphore lives as long as any of its holders", "Slots/DeadHolder",
			func(w *world, req driver.Request) driver.Request {
				if req.Slots > 0 {
					req.TTL = time.Hour
				}
				return req
			}),
		mutateRequest("the first holder sets the size of a semaphore", "Slots/OtherSize",
			func(w *world, req driver.Request) driver.Request {
				if st := w.status(req.Name); st.Slots > 0 && req.Slots > 0 {
					req.Slots = st.Slots
				}
				return req
			}).alsoFailing("the other sizes are in no hold that Status could show", "Inspect/Modes"),
		mutateAcquire("another size is another kind", "Slots/OtherSize",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if st := w.status(req.Name); len(st.Holders) > 0 && st.Slots != req.Slots {
					return nil, driver.ErrKind
				}
				return b.acquire(ctx, req)
			}).alsoFailing("holds of several sizes are never shown", "Inspect/Modes"),
		mutateAcquire("the number of the request alone decides", "Slots/OtherSize",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if st := w.status(req.Name); st.Slots == 2 && len(st.Holders) == 2 && req.Slots > 2 {
					return b.fake(req), nil
				}
				return b.acquire(ctx, req)
			}),
		mutateRequest("a semaphore keeps the least size for as long as anybody holds it", "Slots/OtherSize",
			func(w *world, req driver.Request) driver.Request {
				if st := w.status(req.Name); st.Slots > 0 && req.Slots > 0 {
					req.Slots = min(req.Slots, st.Slots)
				}
				return req
			}),
		mutateAcquire("another kind is just held", "Slots/OtherKind",
			func(ctx context.Context, w *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if st := w.status(req.Name); len(st.Holders) > 0 && (st.Slots > 0) != (req.Slots > 0) {
					return nil, driver.ErrHeld
				}
				return b.acquire(ctx, req)
			}),
		{
			name: "a name keeps its kind for ever", fails: []string{"Slots/KindEnds"},
			make: func(w *world) func(*brokenDriver) {
				kind := make(map[string]int)
				return func(b *brokenDriver) {
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						w.mu.Lock()
						n, ok := kind[req.Name]
						if !ok {
							kind[req.Name] = req.Slots
						}
						w.mu.Unlock()
						if ok && (n > 0) != (req.Slots > 0) {
							return nil, driver.ErrKind
						}
						return b.acquire(ctx, req)
					}
				}
			},
		},
		mutateToken("slots have the token of the first", []string{"Slots/UniqueTokens"},
			func(l *lease, before []*lease) uint64 {
				if last := before[len(before)-1]; l.req.Slots > 0 && last.released.Load() == 0 {
					return last.grant.Token
				}
				return l.grant.Token
			}),
	}
}

func minHoldMutants() []mutant {
	return []mutant{
		mutateRequest("a MinHold within the TTL is ignored", "MinHold/StaysTaken",
			func(_ *world, req driver.Request) driver.Request {
				if req.MinHold <= req.TTL {
					req.MinHold = 0
				}
				return req
			}).alsoFailing("there is nothing that the end of the process could leave", "MinHold/OutlivesProcess"),
		mutateRequest("MinHold is capped by the TTL", "MinHold/OutlastsTTL",
			func(_ *world, req driver.Request) driver.Request {
				req.MinHold = min(req.MinHold, req.TTL)
				return req
			}),
		mutateRelease("Release waits for the end of MinHold", "MinHold/IsReleased",
			func(ctx context.Context, l *lease) error {
				if l.released.Load() == 0 && l.req.MinHold < l.req.TTL {
					time.Sleep(time.Until(l.grantedAt.Add(l.req.MinHold)))
				}
				return l.release(ctx)
			}),
		mutateRenewal("what MinHold keeps is renewed", "MinHold/IsReleased",
			func(_ context.Context, l *lease, sound driver.Renewal) driver.Renewal {
				if sound.Err != nil && l.released.Load() > 0 && l.req.MinHold > 0 {
					return driver.Renewal{Start: driver.Now()}
				}
				return sound
			}),
		{
			name: "Close ends what MinHold keeps", fails: []string{"MinHold/OutlivesProcess"},
			set: func(w *world, b *brokenDriver) {
				b.onGrant = func(l *lease) {
					b.onClose = func() error {
						if st := w.status(l.req.Name); len(st.Holders) > 0 && st.Holders[0].Holder.Kind == driver.KindKept {
							l.breakAll()
						}
						return b.inner.Close()
					}
				}
			},
		},
		{
			name: "MinHold counts from the release", fails: []string{"MinHold/Past", "MinHold/IsReleased"},
			whySeveral: "the lease lives on meanwhile",
			set: func(_ *world, b *brokenDriver) {
				b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					shaped := req
					if req.MinHold < req.TTL { // else the lease would lapse before
						shaped.MinHold = 0
					}
					return b.acquireAs(ctx, req, shaped)
				}
				b.onRelease = func(ctx context.Context, l *lease) error {
					if l.req.MinHold == 0 || l.req.MinHold >= l.req.TTL {
						return l.release(ctx)
					}
					time.AfterFunc(l.req.MinHold, func() { _ = l.release(context.Background()) })
					return nil
				}
			},
		},
	}
}

func wantedMutants() []mutant {
	// mutateWanted returns a mutant with another OnWanted, which knows whether Acquire has returned.
	mutateWanted := func(name, fails string, onWanted func(req driver.Request, returned bool)) mutant {
		return mutateAcquire(name, fails,
			func(ctx context.Context, _ *world, b *brokenDriver, req driver.Request) (driver.Lease, error) {
				if req.OnWanted == nil {
					return b.acquire(ctx, req)
				}
				var returned atomic.Bool
				defer returned.Store(true)
				shaped := req
				shaped.OnWanted = func() { onWanted(req, returned.Load()) }
				return b.acquireAs(ctx, req, shaped)
			})
	}
	return []mutant{
		mutateGrant("OnWanted is called although nobody waits", "Wanted/Alone", func(l *lease) {
			if l.req.OnWanted != nil && !l.waited {
				l.req.OnWanted()
			}
		}).alsoFailing("it is then called once more", "Wanted/OtherProcess", "Wanted/AlreadyWaiting"),
		mutateWanted("a later waiter is not told of", "Wanted/OtherProcess", func(req driver.Request, returned bool) {
			if !returned {
				req.OnWanted()
			}
		}),
		mutateWanted("an earlier waiter is not told of", "Wanted/AlreadyWaiting", func(req driver.Request, returned bool) {
			if returned {
				req.OnWanted()
			}
		}),
	}
}

// mutateStatus returns a mutant that changes the results of Status.
func mutateStatus(name, fails string, shape func(*driver.Status)) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(_ *world, b *brokenDriver) {
			b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
				st, err := b.inner.Status(ctx, name)
				if err == nil {
					shape(&st)
				}
				return st, err
			}
		},
	}
}

// mutateList returns a mutant with a List of its own.
func mutateList(name, fails string,
	list func(ctx context.Context, b *brokenDriver, prefix string, yield func(driver.Status) bool) error) mutant {
	return mutant{
		name: name, fails: []string{fails},
		set: func(_ *world, b *brokenDriver) {
			b.onList = func(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
				return list(ctx, b, prefix, yield)
			}
		},
	}
}

func inspectMutants() []mutant {
	withGranted := func(name, fails string, set func(w *world, b *brokenDriver, withGranted map[string]*lease)) mutant {
		return mutant{
			name: name, fails: []string{fails},
			make: func(w *world) func(*brokenDriver) {
				all := make(map[string]*lease)
				return func(b *brokenDriver) {
					b.onGrant = func(l *lease) {
						all[l.req.Name] = l
					}
					set(w, b, all)
				}
			},
		}
	}
	return []mutant{
		withGranted("Status finds no lock that was never used", "Inspect/Free",
			func(w *world, b *brokenDriver, used map[string]*lease) {
				b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
					if used[name] == nil {
						return driver.Status{}, errors.New("no such row")
					}
					return b.inner.Status(ctx, name)
				}
			}),
		mutateStatus("the label of a holder is cut off", "Inspect/Held", func(st *driver.Status) {
			for i, h := range st.Holders {
				st.Holders[i].Holder.Label = h.Holder.Label[:min(len(h.Holder.Label), 8)]
			}
		}),
		mutateStatus("Left is what was left at first", "Inspect/Held", func(st *driver.Status) {
			for i := range st.Holders {
				st.Holders[i].Left += st.Holders[i].Held
				st.Holders[i].Held = 0
			}
		}),
		mutateStatus("every hold is shown without an expiry", "Inspect/Held", func(st *driver.Status) {
			for i := range st.Holders {
				st.Holders[i].Left = driver.NoExpiry
			}
		}),
		withGranted("Status shows an expired holder", "Inspect/Expired",
			func(w *world, b *brokenDriver, used map[string]*lease) {
				b.onStatus = func(ctx context.Context, name string) (driver.Status, error) {
					st, err := b.inner.Status(ctx, name)
					if l := used[name]; err == nil && l != nil && len(st.Holders) == 0 && l.released.Load() == 0 && l.ended() {
						st.Holders = []driver.Holding{{ID: l.req.ID, Token: l.grant.Token}}
					}
					return st, err
				}
			}),
		mutateStatus("waiters are shown the last one first", "Inspect/Waiters", func(st *driver.Status) {
			slices.Reverse(st.Waiters)
		}),
		mutateStatus("the size of a semaphore is not shown", "Inspect/Modes", func(st *driver.Status) { st.Slots = 0 }),
		mutateStatus("the first holder's size is shown", "Inspect/Modes", func(st *driver.Status) {
			if st.Slots > 0 && len(st.Holders) > 1 {
				st.Slots++
			}
		}),
		withGranted("List shows locks that nobody has", "Inspect/List",
			func(w *world, b *brokenDriver, used map[string]*lease) {
				b.onList = func(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
					for name := range used {
						if st := w.status(name); strings.HasPrefix(name, prefix) && !yield(st) {
							break
						}
					}
					return nil
				}
			}),
		mutateList("List shows names in their escaped form", "Inspect/ListNames",
			func(ctx context.Context, b *brokenDriver, prefix string, yield func(driver.Status) bool) error {
				return b.inner.List(ctx, prefix, func(st driver.Status) bool {
					st.Name = strings.ReplaceAll(st.Name, "\x1b", `\x1b`)
					return yield(st)
				})
			}),
		mutateList("an underscore in a prefix stands for anything", "Inspect/ListPrefix",
			func(ctx context.Context, b *brokenDriver, prefix string, yield func(driver.Status) bool) error {
				matches := func(name string) bool {
					for i := range len(prefix) {
						if i >= len(name) || prefix[i] != '_' && prefix[i] != name[i] {
							return false
						}
					}
					return true
				}
				return b.inner.List(ctx, "", func(st driver.Status) bool { return !matches(st.Name) || yield(st) })
			}),
		mutateList("List does not stop", "Inspect/ListStops",
			func(ctx context.Context, b *brokenDriver, prefix string, yield func(driver.Status) bool) error {
				return b.inner.List(ctx, prefix, func(st driver.Status) bool { yield(st); return true })
			}),
		{
			name: "List locks the store", fails: []string{"Inspect/ListHoldsNothingUp"},
			make: func(*world) func(*brokenDriver) {
				// A mutex would keep the bubble's clock from advancing.
				busy := make(chan struct{}, 1)
				return func(b *brokenDriver) {
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						select {
						case busy <- struct{}{}:
							<-busy
						case <-ctx.Done():
							return nil, context.Cause(ctx)
						}
						return b.acquire(ctx, req)
					}
					b.onList = func(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
						busy <- struct{}{}
						defer func() { <-busy }()
						return b.inner.List(ctx, prefix, yield)
					}
				}
			},
		},
	}
}

func breakMutants() []mutant {
	// mutateBreak returns a mutant that breaks other holds than it was told to.
	mutateBreak := func(name, fails string, which func(h driver.Holding, id string) bool) mutant {
		return mutant{
			name: name, fails: []string{fails},
			set: func(w *world, b *brokenDriver) {
				b.onBreak = func(ctx context.Context, name, id string) error {
					err := error(driver.ErrLost)
					for _, h := range w.status(name).Holders {
						if which(h, id) {
							err = b.inner.Break(ctx, name, h.ID)
						}
					}
					return err
				}
			},
		}
	}
	return []mutant{
		{
			name: "a Break wakes nobody", fails: []string{"Break/Frees"},
			make: func(w *world) func(*brokenDriver) {
				broke := make(map[string]bool)
				return func(b *brokenDriver) {
					b.onBreak = func(ctx context.Context, name, id string) error {
						w.mu.Lock()
						broke[name] = true
						w.mu.Unlock()
						return b.inner.Break(ctx, name, id)
					}
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						l, err := b.acquire(ctx, req)
						w.mu.Lock()
						stuck := err == nil && broke[req.Name]
						w.mu.Unlock()
						if stuck {
							return withhold(ctx, l)
						}
						return l, err
					}
				}
			},
		},
		mutateRequest("nobody is told of a Break", "Break/TellsHolder", func(_ *world, req driver.Request) driver.Request {
			req.OnLost = nil
			return req
		}),
		reviveOnRenew("a hold that was broken is renewed back to life", "Break/Frees",
			func(l *lease) bool { return l.released.Load() == 0 && !l.ended() }),
		mutateBreak("Break does not compare the id", "Break/ComparesID",
			func(driver.Holding, string) bool { return true }).alsoFailing("it breaks the others, too", "Break/OneOfMany"),
		{
			name: "Break of nothing is a success", fails: []string{"Break/ComparesID"},
			set: func(w *world, b *brokenDriver) {
				b.onBreak = func(ctx context.Context, name, id string) error {
					if len(w.status(name).Holders) == 0 {
						return nil
					}
					return b.inner.Break(ctx, name, id)
				}
			},
		},
		{
			name: "Break frees all holds of a lock", fails: []string{"Break/OneOfMany", "Break/Frees"},
			whySeveral: "the waiter may hold the lock before the rest is freed",
			set: func(w *world, b *brokenDriver) {
				b.onBreak = func(ctx context.Context, name, id string) error {
					err := b.inner.Break(ctx, name, id)
					for _, h := range w.status(name).Holders {
						if err == nil {
							_ = b.inner.Break(ctx, name, h.ID)
						}
					}
					return err
				}
			},
		},
	}
}

func withdrawMutants() []mutant {
	mutateWithdraw := func(name, fails string,
		withdraw func(ctx context.Context, b *brokenDriver, name, id string) error) mutant {
		return mutant{name: name, fails: []string{fails}, set: func(_ *world, b *brokenDriver) {
			b.onWithdraw = func(ctx context.Context, name, id string) error { return withdraw(ctx, b, name, id) }
		}}
	}
	return []mutant{
		mutateWithdraw("a waiter that is withdrawn keeps its place", "Withdraw/Waiter",
			func(context.Context, *brokenDriver, string, string) error { return nil }),
		mutateWithdraw("Withdraw ends the hold with the id", "Withdraw/Holds",
			func(ctx context.Context, b *brokenDriver, name, id string) error {
				if err := b.inner.Break(ctx, name, id); !errors.Is(err, driver.ErrLost) {
					return err
				}
				return b.inner.Withdraw(ctx, name, id)
			}),
		mutateWithdraw("Withdraw of an unknown id is an error", "Withdraw/Holds",
			func(ctx context.Context, b *brokenDriver, name, id string) error {
				st := b.world.status(name)
				if !slices.ContainsFunc(st.Waiters, func(w driver.Waiting) bool { return w.ID == id }) {
					return driver.ErrLost
				}
				return b.inner.Withdraw(ctx, name, id)
			}),
	}
}

func churnMutants() []mutant {
	// admitFortieth returns a mutant that admits the fortieth request of a kind for a name, and
	// all later ones, although others hold the lock.
	admitFortieth := func(name, fails string, kind func(driver.Request) bool) mutant {
		return mutant{
			name: name, fails: []string{fails},
			make: func(w *world) func(*brokenDriver) {
				calls := make(map[string]int)
				return func(b *brokenDriver) {
					b.onAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
						in := false
						if kind(req) && !req.NoWait {
							w.withLock(func() { calls[req.Name]++; in = calls[req.Name] >= 40 })
							in = in && len(w.status(req.Name).Holders) > 2*req.Slots/3
						}
						if in {
							return b.fake(req), nil
						}
						return b.acquire(ctx, req)
					}
				}
			},
		}
	}
	return []mutant{
		admitFortieth("under load two hold", "Churn/Counter",
			func(req driver.Request) bool { return !req.Shared && req.Slots == 0 }),
		admitFortieth("under load readers are let in to a writer", "Churn/Shared",
			func(req driver.Request) bool { return req.Shared }),
		admitFortieth("under load a semaphore is overfull", "Churn/Slots",
			func(req driver.Request) bool { return req.Slots > 0 }),
		{
			name: "the fifth waiter that gives up gets the lock", fails: []string{"Churn/Cancels"},
			make: func(w *world) func(*brokenDriver) {
				n := 0
				return leaveGhosts("", "", func(ctx context.Context, _ *world, req driver.Request, _ time.Duration, _ error) bool {
					if ctx.Err() == nil {
						return false
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					n++
					return n == 5 && strings.HasSuffix(req.Name, " lock")
				}).setter(w)
			},
		},
	}
}
