package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// The kinds of leaks, as -o json has them.
const (
	leakEndless   = "endless"   // a hold without an end
	leakDead      = "dead"      // a hold whose process, on this host, is gone
	leakInherited = "inherited" // a hold whose process is gone, but which an heir keeps
	leakDistant   = "distant"   // a hold with an absurd end
	leakStuck     = "stuck"     // waiters that nobody serves
	leakForeign   = "foreign"   // what another lock library left behind
)

const (
	// minSettle is how long a suspect must look like a leak to be one: a hand-over, or the end
	// of a process, takes a moment.
	minSettle = time.Second

	// defaultSettle is the default of --settle: the longest time to watch whether a hold is
	// renewed whose process can't be found.
	defaultSettle = 30 * time.Second

	// stuckAfter is how long the first waiter must have waited for a lock that nobody holds.
	stuckAfter = 5 * time.Second
)

// A leak is something in the store that will not end by itself, or later than it should.
type leak struct {
	kind       string
	name       string
	problem    string
	hold       *driver.Holding // the hold that --fix would break, or nil
	waiter     string          // the id of the entry that the queue is stuck behind
	status     driver.Status
	library    string
	unsure     bool // it may be no lock
	maybeAlive bool // it may still be renewed
	fixed      bool
}

// sameAs reports whether two looks at the store found the same leak.
func (l leak) sameAs(other leak) bool {
	if l.kind != other.kind || l.name != other.name || l.waiter != other.waiter || (l.hold == nil) != (other.hold == nil) {
		return false
	}
	return l.hold == nil || l.hold.ID == other.hold.ID && l.hold.Token == other.hold.Token
}

// A leaksCommand is one call of "snib leaks".
type leaksCommand struct {
	*app
	settle            *duration
	fix, foreign, yes bool
	output            *choice

	host         string
	examined     int // number of locks
	limitReached bool
}

func (a *app) newLeaksCommand() *cobra.Command {
	l := &leaksCommand{app: a}
	cmd := &cobra.Command{
		Use:               "leaks [PREFIX]",
		Short:             "find locks that nobody will free, and waiters that nobody will serve",
		Example:           leaksExamples,
		Long:              leaksNotes,
		Args:              oneDisplayed,
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	l.settle = addDuration(cmd, "settle", "", "the longest time for which a dead hold is watched for a renewal", defaultSettle, minSettle)
	f.BoolVar(&l.fix, "fix", false, "free the leaks, after asking")
	f.BoolVar(&l.foreign, "foreign", false, "with --fix: delete the keys of other libraries, too")
	f.BoolVarP(&l.yes, "yes", "y", false, "don't ask")
	l.output = addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if !l.fix && (l.yes || l.foreign) {
			return usagef("--yes and --foreign need --fix")
		}
		if err := checkYes(l.yes || !l.fix); err != nil {
			return err
		}
		l.host, _ = os.Hostname() // without a host name no process is known to be gone
		return a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			return l.run(ctx, s, strings.Join(args, ""))
		})
	}
	return cmd
}

func (l *leaksCommand) run(ctx context.Context, s *backend.Store, prefix string) error {
	found, err := l.find(ctx, s, prefix)
	if err != nil {
		return err
	}
	var failed error
	if l.fix {
		failed = l.repair(ctx, s, found)
	}
	// Report what was freed even if a later repair failed.
	if err := l.report(s, found); err != nil || failed != nil {
		return cmp.Or(failed, err)
	}
	if slices.ContainsFunc(found, func(k leak) bool { return !k.fixed }) {
		return silentExit(exitFound)
	}
	return nil
}

// find looks twice: what one look shows may be changing, and a hold whose process can't be
// found may still be renewed.
func (l *leaksCommand) find(ctx context.Context, s *backend.Store, prefix string) ([]leak, error) {
	suspects, err := l.findSuspects(ctx, s, prefix)
	if err != nil || len(suspects) == 0 {
		return nil, err
	}
	seen := time.Now()
	if err := l.awaitRenewals(ctx, suspects); err != nil {
		return nil, err
	}
	var found []leak
	for _, k := range suspects {
		// Before the request: a slow answer would make the lease look longer than expected,
		// as if it had been renewed.
		later := time.Since(seen)
		st, err := s.Status(ctx, k.name)
		if err != nil {
			return nil, err
		}
		if k, ok := l.confirm(k, st, later); ok {
			found = append(found, k)
		}
	}
	return found, nil
}

// awaitRenewals waits until the suspects would have changed or been renewed, if they are no
// leaks. It waits no longer than --settle for a renewal.
func (l *leaksCommand) awaitRenewals(ctx context.Context, suspects []leak) error {
	pause := minSettle
	for _, k := range suspects {
		if k.kind == leakDead {
			pause = max(pause, min(renewalDue(*k.hold), l.settle.value))
		}
	}
	if pause > minSettle && onTerminal() {
		l.infof("watching for %s whether a dead hold is renewed", short(pause))
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renewalDue returns the time within which a holder that lives renews h, plus minSettle. A
// lease is renewed after a third of its TTL, and h.Left is at most the TTL, so that
// happens within h.Left/3.
func renewalDue(h driver.Holding) time.Duration { return h.Left/3 + minSettle }

// maxLeaks is how many leaks end the search.
const maxLeaks = 1000

// findSuspects looks at all locks once. It asks for each suspect by its name, because a lock
// service lists no ids: they tell holds and waiters apart, and a foreign hold from what is no lock.
func (l *leaksCommand) findSuspects(ctx context.Context, s *backend.Store, prefix string) (all []leak, err error) {
	enough := func(found int) bool {
		l.limitReached = found >= maxLeaks
		return l.limitReached
	}
	var names []string
	err = s.List(ctx, prefix, func(st driver.Status) bool {
		l.examined++
		if len(l.leaksOf(st)) > 0 || slices.ContainsFunc(st.Holders, isUnbreakable) {
			names = append(names, st.Name)
		}
		return !enough(len(names))
	})
	for _, name := range names {
		st, err := s.Status(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, l.leaksOf(st)...)
	}
	if err != nil || l.limitReached {
		return all, err
	}
	err = s.Strangers(ctx, prefix, func(f backend.Stranger) bool {
		k := leak{kind: leakForeign, name: f.Key, problem: f.Problem, library: f.Library, unsure: f.Unsure}
		if f.Value != "" {
			k.hold = &driver.Holding{ID: f.Value, Left: driver.NoExpiry}
		}
		all = append(all, k)
		return !enough(len(all))
	})
	return all, err
}

// leaksOf returns the leaks of one lock.
func (l *leaksCommand) leaksOf(st driver.Status) (all []leak) {
	for i, h := range st.Holders {
		k := leak{name: st.Name, hold: &st.Holders[i], status: st}
		switch {
		case isUnbreakable(h), h.Holder.Kind == driver.KindReserved: // no lock; meant to last
			continue
		case h.Left == driver.NoExpiry:
			k.kind, k.problem = leakEndless, heldBy(h)+", without an end"
		case h.Inherited:
			k.kind, k.problem = leakInherited, heldBy(h)+"; "+describeEnd(h)
		case h.Holder.Kind == driver.KindProcess && l.isGone(h.Holder): // others are meant to outlive their processes
			k.kind, k.problem = leakDead, heldBy(h)+"; that process is gone, and "+leaseEnd(h)
		case h.Left >= driver.LongestTTL:
			k.kind, k.problem = leakDistant, heldBy(h)+"; "+leaseEnd(h)+", which nobody can have meant"
		default:
			continue
		}
		all = append(all, k)
	}
	if k, ok := l.findStuckQueue(st); ok {
		all = append(all, k)
	}
	return all
}

// findStuckQueue reports whether the waiters of a lock will never get it.
func (l *leaksCommand) findStuckQueue(st driver.Status) (leak, bool) {
	k := leak{kind: leakStuck, name: st.Name, status: st}
	for i, w := range st.Waiters {
		behind := len(st.Waiters) - 1 - i
		if behind > 0 && l.isGone(w.Holder) {
			k.waiter = w.ID
			k.problem = fmt.Sprintf("%s behind the entry of %s, a waiter that is gone", plural(behind, "waiter"), describeHolder(w.Holder))
			return k, true
		}
	}
	if len(st.Holders) == 0 && len(st.Waiters) > 0 && st.Waiters[0].Waited > stuckAfter {
		k.waiter = st.Waiters[0].ID
		k.problem = fmt.Sprintf("%s, the first for %s, and nobody holds the lock", plural(len(st.Waiters), "waiter"), short(st.Waiters[0].Waited))
		return k, true
	}
	return k, false
}

// isGone reports whether h is a process of this host that no longer exists.
func (l *leaksCommand) isGone(h driver.Holder) bool {
	return h.PID > 0 && h.Host != "" && h.Host == l.host && child.Gone(h.PID)
}

// confirm reports whether st still shows the suspected leak k, and returns the leak as it is now.
// st was requested when the time later had passed since k was seen.
func (l *leaksCommand) confirm(k leak, st driver.Status, later time.Duration) (leak, bool) {
	if k.kind == leakForeign {
		return confirmForeign(k, st)
	}
	for _, now := range l.leaksOf(st) {
		if !k.sameAs(now) {
			continue
		}
		if k.kind != leakDead {
			return now, true
		}
		// Somebody may renew it: a process that we can't see, such as one in another container
		// with the name of this host.
		renewed := now.hold.Left > k.hold.Left-later+minSettle/10
		if rest := renewalDue(*k.hold) - later; rest > 0 {
			now.maybeAlive = true
			now.problem += "; if it is alive where this process can't see it, it may renew its lease within " + short(rest)
		}
		return now, !renewed
	}
	return k, false
}

// confirmForeign is confirm for a key of another library.
func confirmForeign(k leak, st driver.Status) (leak, bool) {
	k.status = st
	if len(st.Holders) == 0 || st.Holders[0].Left != driver.NoExpiry ||
		k.hold != nil && (len(st.Holders) != 1 || st.Holders[0].ID != k.hold.ID) {
		return k, false
	}
	if k.hold != nil {
		k.hold = &st.Holders[0] // the list of keys has less of it
	}
	return k, true
}

// isRepairable reports whether --fix does something about a leak.
func (l *leaksCommand) isRepairable(k leak) bool {
	if k.hold != nil && k.hold.Token == 0 && isHidden(*k.hold) {
		return false // the lock service takes nothing in place of its id
	}
	switch k.kind {
	case leakInherited, leakDistant:
		return false // a living process may be at work
	case leakDead:
		return !k.maybeAlive
	case leakForeign:
		return l.foreign && k.hold != nil && !k.unsure
	case leakStuck: // a living waiter would lose its place
		return slices.ContainsFunc(k.status.Waiters, func(w driver.Waiting) bool { return l.isGone(w.Holder) })
	}
	return true
}

// repair frees what was found, as far as it still exists.
func (l *leaksCommand) repair(ctx context.Context, s *backend.Store, found []leak) error {
	n := 0
	for i, k := range found {
		if l.isRepairable(k) {
			n++
		} else if l.foreign && k.unsure && k.hold != nil {
			found[i].problem += ": --fix leaves it alone, and snib release deletes it"
		} else if k.kind == leakStuck {
			found[i].problem += "; it is left alone, because no process of this host that waits for it is gone"
		}
	}
	if n == 0 {
		return nil
	}
	if !l.yes {
		if err := l.confirmRepair(found, n); err != nil {
			return err
		}
	}
	for i, k := range found {
		if !l.isRepairable(k) {
			continue
		}
		switch err := l.repairOne(ctx, s, k); {
		case err == nil:
			found[i].fixed = true
		case errors.Is(err, errors.ErrUnsupported):
			found[i].problem += "; it was left alone, because the store or the lock service ends that by itself"
		case errors.Is(err, snib.ErrLost):
			found[i].problem += "; it changed in the meantime, and was left alone"
		default:
			return err
		}
	}
	return nil
}

// repairOne frees what a leak keeps. It returns ErrLost if the hold has changed since it was found.
// A waiter that is alive after all goes to the end of its queue.
func (l *leaksCommand) repairOne(ctx context.Context, s *backend.Store, k leak) error {
	if k.kind == leakStuck {
		for _, w := range k.status.Waiters {
			if l.isGone(w.Holder) {
				if err := withdraw(ctx, s, k.name, w.ID); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := s.Break(ctx, k.name, k.hold.ID)
	l.auditBreak(s, k.name, *k.hold, "", err)
	return err
}

func withdraw(ctx context.Context, s *backend.Store, name, id string) error {
	ctx, cancel := answerWithin(ctx, driver.AnswerTimeout)
	defer cancel()
	return s.Withdraw(ctx, name, id)
}

// confirmRepair shows what would be freed, and asks the user to type yes.
func (l *leaksCommand) confirmRepair(found []leak, n int) error {
	for _, k := range found {
		if l.isRepairable(k) {
			l.messagef("%s: %s: %s", k.kind, truncate(listedName(k.name), nameWidth), printable(k.problem))
		}
	}
	l.messagef("a holder that is not gone after all may still be at work, and another can then start beside it")
	return l.ask("type yes to free "+plural(n, "lock")+": ", "yes")
}

// report prints the leaks and what became of them.
func (l *leaksCommand) report(s *backend.Store, found []leak) error {
	note := ""
	switch {
	case l.limitReached:
		note = fmt.Sprintf("%d leaks were found, and there may be more", len(found))
	case len(found) == 0:
		note = fmt.Sprintf("no leak among %s in %s", plural(l.examined, "lock"), printable(s.URL))
	}
	return l.print(l.output.value, result{
		document: func() any {
			return leaksJSON{"snib.leaks/1", s.URL, l.examined, l.limitReached, convert(found, toLeak)}
		},
		names: func() []string { return convert(found, func(k leak) string { return listedName(k.name) }) },
		text:  func() string { return describeLeaks(found) },
		note:  note,
	})
}

func toLeak(k leak) leakJSON {
	j := leakJSON{k.kind, k.name, k.problem, k.library, k.unsure, nil, len(k.status.Waiters), k.fixed}
	if h := k.holder(); h != nil {
		j.Holder = new(toHolder(*h))
	}
	return j
}

// holder returns the hold that is shown with a leak, or nil. Of a lock of Redisson it is the first
// one, which --fix does not break.
func (l leak) holder() *driver.Holding {
	if l.hold == nil && l.kind == leakForeign && len(l.status.Holders) > 0 && !isUnbreakable(l.status.Holders[0]) {
		return &l.status.Holders[0]
	}
	return l.hold
}

// describeLeaks returns the leaks for people, one on a line.
func describeLeaks(found []leak) string {
	var b strings.Builder
	for _, k := range found {
		text := truncate(listedName(k.name), nameWidth) + ": " + printable(k.problem)
		switch {
		case k.library == "":
		case k.unsure:
			text += "; perhaps left by " + printable(k.library)
		default:
			text += "; left by " + printable(k.library)
		}
		if k.fixed {
			text += "; freed"
		}
		writeTerm(&b, k.kind, text, 11)
	}
	return b.String()
}

// nameWidth is how much of a name fits on a line of 80 columns behind the kind of the leak.
const nameWidth = 66
