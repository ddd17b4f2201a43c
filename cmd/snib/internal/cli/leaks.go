package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// The kinds of leaks, as -o json has them.
const (
	leakEndless = "endless" // a hold whose key has no end
	leakDead    = "dead"    // a hold whose process, on this host, is gone
	leakKept    = "kept"    // a hold whose process is gone, but not all that it started
	leakOld     = "old"     // a hold that has lasted for longer than --held
	leakStuck   = "stuck"   // waiters whom nobody lets in
	leakForeign = "foreign" // what another lock library left behind
)

const (
	// settled is how long what looks like a leak must last to be one: a hand-over, or the end of a process, takes moments.
	settled = time.Second

	// maxSettled is for how long it is watched, if nothing else is asked for, whether a hold is renewed whose process is not to be seen.
	maxSettled = 30 * time.Second

	// stuckAfter is for how long the first in a queue must have waited for what nobody holds.
	stuckAfter = 5 * time.Second

	// silentAfter is how long a waiter says nothing that has gone. Those of Redis stir every 5 s.
	silentAfter = 20 * time.Second
)

// A leak is something in the store that will not end by itself, or later than it should.
type leak struct {
	kind    string
	name    string
	problem string
	hold    *driver.Holding // what --fix would break, if there is one
	waiter  string          // owner of the entry in the queue
	status  driver.Status
	library string
	unsure  bool // it may be renewed yet
	fixed   bool
}

// same reports whether two looks at the store saw the same leak.
func (l leak) same(other leak) bool {
	if l.kind != other.kind || l.name != other.name || l.waiter != other.waiter || (l.hold == nil) != (other.hold == nil) {
		return false
	}
	return l.hold == nil || l.hold.Owner == other.hold.Owner && l.hold.Token == other.hold.Token
}

// A leaking is one "snib leaks".
type leaking struct {
	*app
	held, settle      *duration
	limit             int
	fix, foreign, yes bool
	output            *choice

	host   string
	looked int // locks
	more   bool
}

func (a *app) leaksCommand() *cobra.Command {
	l := &leaking{app: a}
	cmd := &cobra.Command{
		Use:               "leaks [PREFIX]",
		Short:             "find locks that nobody will free, and waiters whom nobody lets in",
		Example:           leaksExamples,
		Long:              leaksNotes,
		Args:              atMostOne,
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	f.SortFlags = false
	l.held = addDuration(cmd, "held", "", "report what has been held for longer, too (default: don't)", 0, 0)
	l.settle = addDuration(cmd, "settle", "", "watch for so long at most whether a dead hold is renewed", maxSettled, settled)
	f.IntVar(&l.limit, "limit", 1000, "stop when `N` were found")
	f.BoolVar(&l.fix, "fix", false, "free what is found, after asking")
	f.BoolVar(&l.foreign, "foreign", false, "with --fix: delete the keys of other libraries, too")
	f.BoolVarP(&l.yes, "yes", "y", false, "don't ask")
	l.output = addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case l.limit < 1:
			return usagef("--limit %d: it is to be 1 or more", l.limit)
		case !l.fix && (l.yes || l.foreign):
			return usagef("--yes and --foreign go with --fix")
		case l.fix && !l.yes && !child.IsTerminal(syscall.Stdin):
			return usagef("there is no terminal to ask on; give --yes to fix leaks without asking")
		}
		l.host, _ = os.Hostname() // without it nobody is known to be gone
		return a.view(func(ctx context.Context, s *backend.Store) error { return l.run(ctx, s, strings.Join(args, "")) })
	}
	return cmd
}

func (l *leaking) run(ctx context.Context, s *backend.Store, prefix string) error {
	found, err := l.find(ctx, s, prefix)
	if err != nil {
		return err
	}
	var failed error
	if l.fix {
		failed = l.repair(ctx, s, found)
	}
	if err := l.report(s, found); err != nil || failed != nil { // also what was freed before it failed
		return cmp.Or(failed, err)
	}
	if slices.ContainsFunc(found, func(k leak) bool { return !k.fixed }) {
		return silent(exitFound)
	}
	return nil
}

// find looks twice: what is seen once may be in motion, and a hold whose process is not to be seen may be renewed.
func (l *leaking) find(ctx context.Context, s *backend.Store, prefix string) ([]leak, error) {
	suspects, err := l.suspect(ctx, s, prefix)
	if err != nil || len(suspects) == 0 {
		return nil, err
	}
	seen := time.Now()
	if err := l.watch(ctx, suspects); err != nil {
		return nil, err
	}
	var found []leak
	for _, k := range suspects {
		later := time.Since(seen) // before we ask: a slow answer would make a lease look longer than it should be by then, as if renewed
		st, err := status(ctx, s, k.name)
		if err != nil {
			return nil, err
		}
		if k, ok := l.confirm(k, st, later); ok {
			found = append(found, k)
		}
	}
	return found, nil
}

// watch lets pass the time in which it shows what is a leak.
func (l *leaking) watch(ctx context.Context, suspects []leak) error {
	pause := settled
	for _, k := range suspects {
		if k.kind == leakDead {
			pause = max(pause, min(unrenewed(*k.hold), l.settle.value))
		}
	}
	line := l.progress()
	defer line.clear()
	for end := time.Now().Add(pause); time.Now().Before(end); {
		rest := time.Until(end)
		line.show("watching for another %s whether a dead hold is renewed", short(rest))
		select {
		case <-time.After(min(rest, settled/2)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// unrenewed is for how long a hold that lives may go without a renewal from now on, and a moment: a lease is renewed when a third of its TTL
// is over, which is no less than what is left.
func unrenewed(h driver.Holding) time.Duration { return h.Left/3 + settled }

// suspect looks at all locks once, and stops at --limit.
func (l *leaking) suspect(ctx context.Context, s *backend.Store, prefix string) (all []leak, err error) {
	line := l.progress()
	defer line.clear()
	enough := func() bool {
		line.show("%s looked at, %d suspect", plural(l.looked, "lock"), len(all))
		l.more = len(all) >= l.limit
		return l.more
	}
	err = each(ctx, s, prefix, func(st driver.Status) bool {
		l.looked++
		all = append(all, l.judge(st)...)
		return !enough()
	})
	if err != nil || l.more {
		return all, err
	}
	err = s.Strangers(ctx, prefix, func(f backend.Stranger) bool {
		k := leak{kind: leakForeign, name: f.Key, problem: f.Problem, library: f.Library}
		if f.Value != "" {
			k.hold = &driver.Holding{Owner: f.Value, Endless: true}
		}
		all = append(all, k)
		return !enough()
	})
	return all, err
}

// judge tells what is wrong with a lock, if anything.
func (l *leaking) judge(st driver.Status) []leak {
	var all []leak
	for i, h := range st.Holders {
		k := leak{name: st.Name, hold: &st.Holders[i], status: st}
		switch {
		case h.Endless:
			k.kind, k.problem = leakEndless, heldBy(h)+", without an end"
		case h.Inherited:
			k.kind, k.problem = leakKept, heldBy(h)+"; "+prospect(h)
		case h.Holder.Label != lockLabel && l.gone(h.Holder):
			k.kind, k.problem = leakDead, heldBy(h)+"; that process is gone, and "+end(h)
		case l.held.value > 0 && h.Held > l.held.value:
			k.kind, k.problem = leakOld, heldBy(h)
		default:
			continue
		}
		all = append(all, k)
	}
	if k, ok := l.jam(st); ok {
		all = append(all, k)
	}
	return all
}

// jam tells whether those who wait do so in vain.
func (l *leaking) jam(st driver.Status) (leak, bool) {
	k := leak{kind: leakStuck, name: st.Name, status: st}
	for i, w := range st.Waiters {
		behind := len(st.Waiters) - 1 - i
		if behind > 0 && (l.gone(w.Holder) || w.Silent > silentAfter) {
			k.waiter = w.Owner
			k.problem = fmt.Sprintf("%s behind an entry of %s, who is gone", plural(behind, "waiter"), describe(w.Holder))
			return k, true
		}
	}
	if len(st.Holders) == 0 && len(st.Waiters) > 0 && st.Waiters[0].Waited > stuckAfter {
		k.waiter = st.Waiters[0].Owner
		k.problem = fmt.Sprintf("%s, the first for %s, and nobody holds it", plural(len(st.Waiters), "waiter"), short(st.Waiters[0].Waited))
		return k, true
	}
	return k, false
}

// gone reports whether a process of this host is not there any more.
func (l *leaking) gone(h driver.Holder) bool {
	return h.PID > 0 && h.Host != "" && h.Host == l.host && errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH)
}

// confirm compares a suspicion with the lock as it is that much later, or a little more.
func (l *leaking) confirm(k leak, st driver.Status, later time.Duration) (leak, bool) {
	if k.kind == leakForeign {
		return k, k.hold == nil || len(st.Holders) == 1 && st.Holders[0].Endless && st.Holders[0].Owner == k.hold.Owner
	}
	for _, now := range l.judge(st) {
		if !k.same(now) {
			continue
		}
		if k.kind != leakDead {
			return now, true
		}
		// Somebody may renew it: a process that we don't see, such as one of another container with the name of this host.
		renewed := now.hold.Left > k.hold.Left-later+settled/10
		if rest := unrenewed(*k.hold) - later; rest > 0 {
			now.unsure = true
			now.problem += "; if it is at work where we can't see it, it may renew that within " + short(rest)
		}
		return now, !renewed
	}
	return k, false
}

// repairs reports whether --fix does something about a leak.
func (l *leaking) repairs(k leak) bool {
	switch k.kind {
	case leakOld, leakKept:
		return false // somebody lives who may be at work
	case leakDead:
		return !k.unsure
	case leakForeign:
		return l.foreign && k.hold != nil
	}
	return true
}

// repair frees what was found, as far as it is still there.
func (l *leaking) repair(ctx context.Context, s *backend.Store, found []leak) error {
	n := 0
	for _, k := range found {
		if l.repairs(k) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	if !l.yes {
		if err := l.ask(found, n); err != nil {
			return err
		}
	}
	for i, k := range found {
		if !l.repairs(k) {
			continue
		}
		switch err := l.mend(ctx, s, k); {
		case err == nil:
			found[i].fixed = true
		case errors.Is(err, snib.ErrHeld):
			found[i].problem += "; they are let in when the present hold ends"
		case errors.Is(err, snib.ErrLost):
			found[i].problem += "; it has changed meanwhile, and was left alone"
		default:
			return err
		}
	}
	return nil
}

// mend frees what a leak keeps. It answers ErrLost if that is not what was found any more, and ErrHeld if it takes the end of a hold.
func (l *leaking) mend(ctx context.Context, s *backend.Store, k leak) error {
	if k.hold == nil {
		return unstick(ctx, s, k)
	}
	err := breakHold(ctx, s, k.name, *k.hold)
	if !errors.Is(err, snib.ErrLost) {
		l.audit(s, k.name, *k.hold, err)
	}
	return err
}

// ask has a person say yes.
func (l *leaking) ask(found []leak, n int) error {
	for _, k := range found {
		if l.repairs(k) {
			l.say("%s: %s: %s", k.kind, cut(listed(k.name), nameWidth), printable(k.problem))
		}
	}
	l.say("who is not gone after all may still be at work; another can then start beside it")
	fmt.Fprintf(l.err, "type yes to free %s: ", plural(n, "lock"))
	text, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil || strings.TrimSpace(text) != "yes" {
		return usagef("that is not yes: nothing was freed")
	}
	return nil
}

// unstick has the store look at a queue: it forgets who is gone, and lets in who can be, when somebody asks for the lock. What is
// granted is given back at once. It answers ErrHeld if the entry is still there: it is passed over when the present hold ends.
func unstick(ctx context.Context, s *backend.Store, k leak) error {
	ctx, cancel := context.WithTimeout(ctx, stuckAfter)
	defer cancel()
	lease, err := s.Acquire(ctx, driver.Request{
		Name: k.name, Owner: rand.Text(), TTL: max(stuckAfter, s.Info().MinTTL), NoWait: true,
		Shared: k.status.Shared, Slots: k.status.Slots, Holder: driver.Holder{Label: "snib leaks"},
	})
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil && !errors.Is(err, snib.ErrHeld) {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	st, err := status(ctx, s, k.name)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(st.Waiters, func(w driver.Waiting) bool { return w.Owner == k.waiter }) {
		return snib.ErrHeld
	}
	return nil
}

// leakJSON is a leak in snib.leaks/1.
type leakJSON struct {
	Kind    string         `json:"kind"`
	Name    string         `json:"name"`
	Problem string         `json:"problem"`
	Library string         `json:"library,omitempty"`
	Holder  *inheritedJSON `json:"holder,omitempty"`
	Waiters int            `json:"waiters"`
	Fixed   bool           `json:"fixed"`
}

// report says what was found, and what became of it.
func (l *leaking) report(s *backend.Store, found []leak) error {
	switch l.output.value {
	case "json":
		doc := struct {
			Schema string     `json:"schema"`
			Store  string     `json:"store"`
			Looked int        `json:"looked"`
			More   bool       `json:"more"`
			Leaks  []leakJSON `json:"leaks"`
		}{"snib.leaks/1", s.URL, l.looked, l.more, []leakJSON{}}
		for _, k := range found {
			j := leakJSON{k.kind, k.name, k.problem, k.library, nil, len(k.status.Waiters), k.fixed}
			if k.hold != nil {
				h := toInherited(*k.hold)
				j.Holder = &h
			}
			doc.Leaks = append(doc.Leaks, j)
		}
		return l.printJSON(doc)
	case "name":
		for _, k := range found {
			if err := l.printf("%s\n", listed(k.name)); err != nil {
				return err
			}
		}
		return nil
	}
	var b strings.Builder
	for _, k := range found {
		text := cut(listed(k.name), nameWidth) + ": " + printable(k.problem)
		if k.library != "" {
			text += "; left by " + printable(k.library)
		}
		if k.fixed {
			text += "; freed"
		}
		wrap(&b, k.kind, text, 10)
	}
	switch {
	case l.more:
		l.tell("%d were found, and there may be more: see --limit", len(found))
	case len(found) == 0:
		l.tell("no leak among %s in %s", plural(l.looked, "lock"), printable(s.URL))
	}
	return l.printf("%s", b.String())
}

// nameWidth is how much of a name stands on a line of 80 columns, behind what kind of leak it is.
const nameWidth = 66
