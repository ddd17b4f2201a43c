package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// How often snib watch and snib top look. Between two looks they rest for at least restFactor times as long as a look took, so that a
// big store answers them for a tenth of the time at most. Of the last two looks the shorter one counts, and one that failed took no time: else
// who watches a store that hung for a moment would be told nothing for nine times as long.
const (
	everyNamed = 100 * time.Millisecond // at one lock
	everyAll   = time.Second            // at all
	restFactor = 9
)

// outage is for how long a watch outlives a store that does not answer.
const outage = time.Minute

// An event is what happened to a hold, or a waiter, between two looks.
type event struct {
	Schema string      `json:"schema"`
	Time   string      `json:"time"` // RFC 3339, in UTC, when it was seen
	Event  string      `json:"event"`
	Name   string      `json:"name"`
	Holder *holderJSON `json:"holder,omitempty"`
	From   *holderJSON `json:"from,omitempty"` // handed-over: who held it before
	Waiter *waiterJSON `json:"waiter,omitempty"`
}

// The kinds of events.
const (
	eventHeld     = "held"        // at the first look
	eventAcquired = "acquired"    // by somebody, and nobody held it before
	eventHanded   = "handed-over" // another held it at the look before
	eventReleased = "released"    // before its lease was over, by its holder or by force
	eventLost     = "lost"        // its lease ran out
	eventWaiting  = "waiting"
	eventGaveUp   = "gave-up" // waited, and ended that without the lock
	eventLeft     = "left"    // waited, and does not any more; it may have had the lock between two looks
)

// A watching is one "snib watch".
type watching struct {
	*app
	exact, waiters bool
	bound          *duration
	output         *choice
}

func (a *app) watchCommand() *cobra.Command {
	w := &watching{app: a}
	cmd := &cobra.Command{
		Use:               "watch [PREFIX] | --exact NAME",
		Short:             "print a line for each hold that begins or ends",
		Example:           watchExamples,
		Long:              watchNotes,
		Args:              atMostOne,
		ValidArgsFunction: a.completeName,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&w.exact, "exact", "x", false, "only the lock of that name; looks ten times a second")
	f.BoolVar(&w.waiters, "waiters", false, "those who begin and cease to wait, too")
	w.bound = addDuration(cmd, "for", "", "end after this long (default: never)", 0, 0)
	w.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := strings.Join(args, "")
		if w.exact {
			if err := oneName(cmd, args); err != nil {
				return err
			}
		}
		return a.view(func(ctx context.Context, s *backend.Store) error { return w.watch(ctx, s, name) })
	}
	return cmd
}

// watch looks again and again: no store tells of what happens to locks whose names one does not wait for.
func (w *watching) watch(ctx context.Context, s *backend.Store, name string) error {
	look, every := lookAll, everyAll
	if w.exact {
		look, every = lookAt, everyNamed
	}
	o := observer{
		every: every,
		look:  func() (snapshot, error) { return look(ctx, s, name) },
		fails: w.lookOn,
		seen: func(was, now snapshot, passed time.Duration) error {
			for _, e := range w.compare(was, now, passed) {
				if err := w.print(e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	if !w.bound.set {
		return o.run(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, w.bound.value) // bounds the pauses, so that there is one look at least
	defer cancel()
	return o.run(bounded)
}

// A snapshot is what was seen at one look: locks by their names.
type snapshot map[string]driver.Status

// tooMany is how many locks are watched at most: they are kept in memory, and read at each look.
const tooMany = 100_000

// lookAll looks at all locks whose names start with prefix.
func lookAll(ctx context.Context, s *backend.Store, prefix string) (snapshot, error) {
	all := make(snapshot)
	err := each(ctx, s, prefix, func(st driver.Status) bool {
		all[st.Name] = st
		return len(all) <= tooMany
	})
	if len(all) > tooMany {
		return nil, usagef("there are more than %d locks: give a prefix, or --exact and a name", tooMany)
	}
	return all, err
}

// lookAt looks at one lock.
func lookAt(ctx context.Context, s *backend.Store, name string) (snapshot, error) {
	st, err := status(ctx, s, name)
	return snapshot{name: st}, err
}

// An observer looks at locks again and again.
type observer struct {
	every time.Duration // at least
	look  func() (snapshot, error)
	fails func(error) // is called at the beginning of each outage

	// Seen is called with each look, the one before, which is nil at first, and the time from the beginning of that one to the end of this
	// one: a lease that had more left can't have run out in between, however long the store took to answer.
	seen func(was, now snapshot, passed time.Duration) error
}

// lookOn tells of an outage that does not end what observes.
func (a *app) lookOn(err error) { a.tell("%s; looking on", message(err)) }

// run looks until ctx is done. It endures a store that does not answer for a minute.
func (o *observer) run(ctx context.Context) error {
	var was snapshot
	var last time.Time
	var before time.Duration // that the look before took
	failing := false
	for {
		began := time.Now()
		now, err := o.look()
		took := time.Since(began)
		switch {
		case ctx.Err() != nil && was != nil:
			return nil
		case err != nil && (was == nil || time.Since(last) > outage || exitCode(err) != exitUnavailable):
			return err
		case err != nil:
			if !failing {
				o.fails(err)
			}
			failing, took = true, 0
		default:
			if err := o.seen(was, now, time.Since(last)); err != nil {
				return err
			}
			was, last, failing = now, began, false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(o.every, restFactor*min(took, before))):
		}
		before = took
	}
}

// compare tells what happened between two looks. What began and ended in between is not seen.
func (w *watching) compare(was, now snapshot, passed time.Duration) []event {
	names := make([]string, 0, len(was)+len(now))
	for name := range was {
		names = append(names, name)
	}
	for name := range now {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []event
	for _, name := range slices.Compact(names) {
		all = append(all, holdEvents(name, was, now, passed)...)
		if w.waiters {
			all = append(all, waitEvents(name, was[name], now[name])...)
		}
	}
	return all
}

// holdEvents tells which holds of a lock began and ended.
func holdEvents(name string, was, now snapshot, passed time.Duration) []event {
	ended, begun := changed(was[name].Holders, now[name].Holders), changed(now[name].Holders, was[name].Holders)
	one := func(kind string, h driver.Holding) event {
		j := toHolder(h)
		return newEvent(kind, name, &j)
	}
	exclusive := mode(was[name]) == "exclusive" && mode(now[name]) == "exclusive"
	if exclusive && len(ended) == 1 && len(begun) == 1 && ended[0].Left > passed {
		e := one(eventHanded, begun[0])
		from := toHolder(ended[0])
		e.From = &from
		return []event{e}
	}
	var all []event
	for _, h := range ended {
		if h.Left > passed || h.Endless {
			all = append(all, one(eventReleased, h))
		} else {
			all = append(all, one(eventLost, h))
		}
	}
	for _, h := range begun {
		if was == nil {
			all = append(all, one(eventHeld, h))
		} else {
			all = append(all, one(eventAcquired, h))
		}
	}
	return all
}

// changed returns the holds of some that others does not have.
func changed(some, others []driver.Holding) []driver.Holding {
	return slices.DeleteFunc(slices.Clone(some), func(h driver.Holding) bool {
		return slices.ContainsFunc(others, func(o driver.Holding) bool { return o.Owner == h.Owner && o.Token == h.Token })
	})
}

// waitEvents tells who began to wait for a lock, or waits at the first look, and who ended that
// without being seen to hold it.
func waitEvents(name string, was, now driver.Status) []event {
	one := func(kind string, waiter driver.Waiting) event {
		e := newEvent(kind, name, nil)
		e.Waiter = &toJSON(driver.Status{Waiters: []driver.Waiting{waiter}}).Waiters[0]
		return e
	}
	in := func(all []driver.Waiting, owner string) bool {
		return slices.ContainsFunc(all, func(w driver.Waiting) bool { return w.Owner == owner })
	}
	var all []event
	for _, waiter := range now.Waiters {
		if !in(was.Waiters, waiter.Owner) {
			all = append(all, one(eventWaiting, waiter))
		}
	}
	for _, waiter := range was.Waiters {
		switch {
		case in(now.Waiters, waiter.Owner), holding(now, waiter.Owner) != nil:
		case excluded(was, now, waiter):
			all = append(all, one(eventGaveUp, waiter))
		default:
			all = append(all, one(eventLeft, waiter))
		}
	}
	return all
}

// excluded reports whether a waiter can't have held the lock between two looks, since the same
// holds kept it out at both.
func excluded(was, now driver.Status, waiter driver.Waiting) bool {
	stayed := len(was.Holders) - len(changed(was.Holders, now.Holders))
	switch {
	case was.Slots > 0:
		return stayed >= was.Slots
	case was.Shared && waiter.Shared:
		return false
	}
	return stayed > 0
}

func newEvent(kind, name string, h *holderJSON) event {
	return event{Schema: "snib.watch/1", Time: stamp(time.Now()), Event: kind, Name: name, Holder: h}
}

// stamp is a time in JSON.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (w *watching) print(e event) error {
	if w.output.value == "json" {
		text, err := marshal(e)
		if err != nil {
			return err
		}
		return w.printf("%s\n", text)
	}
	who := ""
	switch {
	case e.Waiter != nil:
		who = describe(driver.Holder{Host: e.Waiter.Host, PID: e.Waiter.PID, Label: e.Waiter.Label})
	case e.Event == eventReleased, e.Event == eventLost:
		who = fmt.Sprintf("token %d, %s%s", e.Holder.Token, e.Holder.after(), describe(e.Holder.holder()))
	default:
		who = fmt.Sprintf("token %d, %s", e.Holder.Token, describe(e.Holder.holder()))
	}
	head, name, width := fmt.Sprintf("%s  %-11s  ", e.Time[11:23], e.Event), listed(e.Name), max(narrow, child.Width(syscall.Stdout))
	room := width - len(head) - len("  ")
	name = cut(name, max(room/3, room-len([]rune(who)))) // a long one leaves room for who
	return w.printf("%s\n", cut(head+name+"  "+who, width))
}

// after is how long a hold lasted, for the middle of a line, if that is known.
func (h *holderJSON) after() string {
	if h.Held == nil {
		return ""
	}
	return fmt.Sprintf("after %s, ", short(time.Duration(*h.Held*float64(time.Second))))
}

func (h *holderJSON) holder() driver.Holder {
	return driver.Holder{Host: h.Host, PID: h.PID, Label: h.Label}
}
