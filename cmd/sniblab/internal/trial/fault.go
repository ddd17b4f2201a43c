package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/internal/history"
)

// A need is what a fault needs of the store or of the target.
type need string

const (
	ownProcess need = "a process for each client"
	aServer    need = "a server"
	anOwnWay   need = "addresses that the lab can stand in for"
	toForget   need = "a Redis server alone"
	aReplica   need = "several servers, one of which leads"
	aMajority  need = "redlock"
	aClock     need = "a server that asks libc for the time, and a C compiler"
	aDisk      need = "a server that writes its files by libc, and a C compiler"

	aClientClock need = "a program that asks libc for the time, as those in Go don't, and a C compiler"
)

// A fault is something that the director makes go wrong. It records when.
type fault struct {
	name  string
	about string
	needs need // or ""
	do    func(ctx context.Context, b *trial, victim *client, rng *rand.Rand)
}

// faults is the table of all faults. "sniblab list" and docs/lab.md show it.
func faults() []fault {
	of := map[string]need{
		"store-pause": aServer, "store-restart": aServer, "store-forget": toForget, "forget-quorum": aMajority,
		servers.Forward: aClock, servers.Back: aClock, "disk-full": aDisk, "failover": aReplica,
	}
	all := []fault{
		{"pause", "a holder is stopped (SIGSTOP) for 0.8 to 2.2 TTLs, and then works on", "", pause},
		{"late-write", "a holder is stopped for more than a TTL, just after it has looked at the lock; its write arrives then", "", lateWrite},
		{"kill", "a holder is killed (kill -9), and started again", ownProcess, killHolder},
		{"stop-waiter", "a client that waits for the lock is stopped for 0.5 to 2 TTLs", "", stopWaiter},
		{"kill-waiter", "a client that waits for the lock is killed, and started again", ownProcess, killWaiter},
		{"clock-forward", "the clock of a holder is set forward by 2 to 4 TTLs", aClientClock, stepClient("clock-forward", 1)},
		{"clock-back", "the clock of a holder is set back by 2 to 4 TTLs", aClientClock, stepClient("clock-back", -1)},
		{"crash", "a client that acquires is killed after the server's answer to one of its requests, the first to the third, was lost", anOwnWay, crash},
		{"lost-acquire", "the server's answer to one of the requests of a client that acquires, the first to the third, is lost with its connection", anOwnWay, lostAcquire},
		{"lost-renewal", "the answer to the first request of a client that holds the lock is lost with its connection", anOwnWay, lostRenewal},
		{"lost-release", "the answer to a client that releases is lost with its connection", anOwnWay, lostRelease},
		{"slow-acquire", "the answers of a server, the last one of several, to a client that acquires are late by more than a TTL", anOwnWay, slowAcquire},
		{"slow-release", "the requests, or the answers, of a client that releases are late by more than a TTL", anOwnWay, slowRelease},
		{"delay", "all requests and answers take 10 to 40 ms, for two seconds", anOwnWay, delay},
		{"stall", "nothing passes for 100 ms, ten times", anOwnWay, stall},
		{"cut", "a holder is cut off from the server, without being told, for 1.2 to 2 TTLs", anOwnWay, disconnect("cut", sever)},
		{"late-cut", "a holder is cut off for 1.2 to 2 TTLs, and then all that was sent meanwhile arrives", anOwnWay, disconnect("late-cut", holdBack)},
		{"no-answers", "the requests of a holder arrive, and no answers come back, for 1.2 to 2 TTLs", anOwnWay, disconnect("no-answers", swallow)},
	}
	for _, f := range servers.Faults() {
		if needs, ours := of[f.Name]; ours { // the others break what locks assume: the nemesis excuses that
			all = append(all, fault{f.Name, f.About, needs, strike(f.Name)})
		}
	}
	return all
}

// A FaultInfo describes a fault.
type FaultInfo struct {
	Name, About string
	Needs       string // or ""
}

// Faults describes all faults.
func Faults() []FaultInfo {
	var all []FaultInfo
	for _, f := range faults() {
		all = append(all, FaultInfo{f.name, f.about, string(f.needs)})
	}
	return all
}

// fits reports whether a target can have a fault.
func (f fault) fits(c Target) bool {
	kind := c.Store.of()
	switch f.needs {
	case "":
		return true
	case ownProcess:
		return !c.Together
	case aClientClock:
		return c.LibcClock && servers.HasCompiler()
	case aClock, aDisk:
		return slices.Contains(kind.has, f.needs) && servers.HasCompiler()
	case anOwnWay:
		return slices.Contains(kind.has, anOwnWay) && (!c.OneWay || f.name == "delay" || f.name == "stall")
	}
	return slices.Contains(kind.has, f.needs)
}

// faultsFor returns the faults that a target is run under.
func faultsFor(c Target, only []string) ([]fault, error) {
	if c.Faults != nil {
		only = c.Faults
	}
	var chosen []fault
	for _, f := range faults() {
		if (only == nil || slices.Contains(only, f.name)) && f.fits(c) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 && c.Work == 0 {
		return nil, fmt.Errorf("%s on the store %s can't have the faults %s: sniblab list says what they need", c.Name, c.Store, strings.Join(only, ", "))
	}
	return chosen, nil
}

// ttls returns a random time between so many TTLs.
func ttls(rng *rand.Rand, from, to float64) time.Duration {
	return time.Duration((from + rng.Float64()*(to-from)) * float64(TTL))
}

// let has a client do a variant, and waits for its end. If the client does not come to it, because
// it does not get the lock, let gives up.
func (b *trial) let(ctx context.Context, c *client, a variant) {
	a.done = make(chan struct{})
	select {
	case c.variants <- a:
	case <-ctx.Done(): // the client has ended, and may have left a variant there
		return
	}
	wait := time.NewTimer(4 * TTL)
	defer wait.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
	case <-wait.C:
		select {
		case <-c.variants: // it has not taken it
		case <-a.done:
		case <-time.After(4 * TTL):
		case <-ctx.Done():
		}
	}
}

// wait waits for a time.
func (b *trial) wait(ctx context.Context, d time.Duration) {
	b.await(ctx, d, func() bool { return false })
}

// awaitOr waits for ch, or for a time.
func awaitOr(ctx context.Context, ch <-chan struct{}, d time.Duration) {
	select {
	case <-ch:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// whileHeld makes something happen while a client holds the lock, if it gets it. The client works
// on until half a TTL after that: what went wrong shows only then.
func (b *trial) whileHeld(ctx context.Context, c *client, do func()) {
	held, over, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		b.let(ctx, c, variant{holding: func(c *client, id int64) {
			close(held)
			has := true
			for has {
				select {
				case <-over:
					if c.stay(ctx, id, TTL/2) {
						c.finish(ctx, id)
					}
					has = false
				default:
					has = c.stay(ctx, id, sampling)
				}
			}
			c.release(ctx, id)
		}})
	}()
	select {
	case <-held:
	case <-done: // it does not get the lock
	}
	do()
	close(over)
	<-done
}

// during records a fault of the store or of the network while do does it.
func (b *trial) during(name string, do func()) {
	defer b.begin(name, "")()
	do()
}

// stopFor stops the process of a client for a time. before is called just before it goes on.
func (c *client) stopFor(ctx context.Context, d time.Duration, before func()) {
	owner := c.owner()
	end := c.b.begin(history.StopWorker, owner.worker)
	if err := owner.process.Stop(); err != nil {
		c.b.failf("stop %s: %w", owner.worker, err)
	}
	c.sleep(ctx, d)
	before()
	if err := owner.process.Resume(); err != nil {
		c.b.failf("resume %s: %w", owner.worker, err)
	}
	end()
}

// restart kills the process of a client as a crash would, and starts it again.
func (c *client) restart(ctx context.Context, fault string) {
	end := c.b.begin(fault, c.worker)
	c.b.begin(history.KillWorker, c.worker)()
	c.kill()
	end()
	for _, way := range c.ways() {
		way.Heal()
	}
	if err := c.start(ctx); err != nil && ctx.Err() == nil {
		c.b.stop(err)
	}
}
