package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// How long snib watch pauses between snapshots: restFactor times as long as the last one took, so
// that a big store spends a tenth of the time on it, but for no longer than maxPause.
const (
	minPause   = time.Second
	maxPause   = 10 * time.Second
	restFactor = 9
)

// retryTimeout is how long a watch goes on while the store does not answer.
const retryTimeout = time.Minute

// An event is what happened to a hold between two snapshots.
type event struct {
	Schema string      `json:"schema"`
	Time   string      `json:"time"`           // when it was seen: RFC 3339, in UTC
	Event  string      `json:"event"`          // what happened: see [the events](guide/operating.md#watch)
	Name   string      `json:"name"`           // the name of the lock
	Holder holderJSON  `json:"holder"`         // whose hold it is
	From   *holderJSON `json:"from,omitempty"` // the holder before, if the lock was handed over

	hold driver.Holding
}

// The kinds of events.
const (
	eventHeld     = "held"        // in the first snapshot
	eventAcquired = "acquired"    // nobody held the lock before
	eventHanded   = "handed-over" // another one held it in the snapshot before
	eventReleased = "released"    // by its holder, perhaps before its MinHold ended, or by force
	eventLost     = "lost"        // its lease ended
)

// A watchCommand is one call of "snib watch".
type watchCommand struct {
	*app
	output *choice
}

func (a *app) newWatchCommand() *cobra.Command {
	w := &watchCommand{app: a}
	cmd := &cobra.Command{
		Use:               "watch [PREFIX]",
		Short:             "print a line for each hold that begins or ends",
		Example:           watchExamples,
		Long:              watchNotes,
		Args:              oneDisplayed,
		ValidArgsFunction: a.completeName,
	}
	w.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withStore(backend.Take, func(ctx context.Context, s *backend.Store) error { // as export does
			return w.watch(ctx, s, strings.Join(args, ""))
		})
	}
	return cmd
}

// A snapshot is what one look at the store showed: locks by their names.
type snapshot map[string]driver.Status

// maxWatched is the largest number of locks that snib watch accepts: it keeps all in memory, and
// reads all for each snapshot.
const maxWatched = 100_000

// takeSnapshot reads all locks whose names start with prefix.
func takeSnapshot(ctx context.Context, s *backend.Store, prefix string) (snapshot, error) {
	all := make(snapshot)
	err := s.List(ctx, prefix, func(st driver.Status) bool {
		all[st.Name] = st
		return len(all) <= maxWatched
	})
	if len(all) > maxWatched {
		return nil, usagef("there are more than %d locks: give a prefix", maxWatched)
	}
	return all, err
}

// watch takes snapshots until ctx is done, because no store announces what happens to locks that
// the caller does not wait for. It tolerates outages of up to retryTimeout, but not before the
// first snapshot.
func (w *watchCommand) watch(ctx context.Context, s *backend.Store, prefix string) error {
	var was snapshot
	var last time.Time
	var failing time.Time // since when snapshots fail; zero if they don't
	for {
		began := time.Now()
		now, err := takeSnapshot(ctx, s, prefix)
		took := time.Since(began)
		switch {
		case err != nil && (was == nil || exitCode(err) != exitUnavailable),
			err != nil && !failing.IsZero() && time.Since(failing) > retryTimeout:
			return err
		case err != nil:
			if failing.IsZero() {
				w.infof("%s; still watching", message(err))
				failing = began
			}
			took = 0
		default:
			if err := w.report(was, now, time.Since(last)); err != nil {
				return err
			}
			was, last, failing = now, began, time.Time{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(minPause, restFactor*took), maxPause)):
		}
	}
}

// report prints what happened between two snapshots; was is nil at first. It does not see what
// began and ended in between. The time passed is that from the start of the earlier to the end of
// the later one: a lease that had more left can't have ended meanwhile, however slow the store was.
func (w *watchCommand) report(was, now snapshot, passed time.Duration) error {
	var all []event
	for _, name := range namesIn(was, now) {
		all = append(all, holdEvents(name, was, now, passed)...)
	}
	for _, e := range all {
		r := result{document: func() any { return e }, oneLine: true, text: e.line}
		if err := w.print(w.output.value, r); err != nil {
			return err
		}
	}
	return nil
}

// namesIn returns the names of the locks in two snapshots, sorted, each once.
func namesIn(was, now snapshot) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(now))
	slices.Sort(names)
	return slices.Compact(names)
}

// holdEvents returns the events of the holds of one lock.
func holdEvents(name string, was, now snapshot, passed time.Duration) []event {
	ended, begun := holdsNotIn(was[name].Holders, now[name].Holders), holdsNotIn(now[name].Holders, was[name].Holders)
	exclusive := mode(was[name]) == "exclusive" && mode(now[name]) == "exclusive"
	if exclusive && len(ended) == 1 && len(begun) == 1 && wasReleased(ended[0], passed) {
		e := newEvent(eventHanded, name, begun[0])
		e.From = new(toHolder(ended[0]))
		return []event{e}
	}
	var all []event
	for _, h := range ended {
		if wasReleased(h, passed) {
			all = append(all, newEvent(eventReleased, name, h))
		} else {
			all = append(all, newEvent(eventLost, name, h))
		}
	}
	for _, h := range begun {
		if was == nil {
			all = append(all, newEvent(eventHeld, name, h))
		} else {
			all = append(all, newEvent(eventAcquired, name, h))
		}
	}
	return all
}

// wasReleased reports whether a hold that is gone ended before its lease. A hold that its MinHold
// kept was released before.
func wasReleased(h driver.Holding, passed time.Duration) bool {
	return h.Left > passed || h.Holder.Kind == driver.KindKept
}

// holdsNotIn returns the holds in some that are not in others.
func holdsNotIn(some, others []driver.Holding) []driver.Holding {
	return slices.DeleteFunc(slices.Clone(some), func(h driver.Holding) bool {
		return slices.ContainsFunc(others, func(o driver.Holding) bool { return o.ID == h.ID && o.Token == h.Token })
	})
}

func newEvent(kind, name string, h driver.Holding) event {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	return event{Schema: "snib.watch/1", Time: now, Event: kind, Name: name, Holder: toHolder(h), hold: h}
}

// line returns an event on one line, for people.
func (e event) line() string {
	who := fmt.Sprintf("token %d, ", e.hold.Token)
	if ended := e.Event == eventReleased || e.Event == eventLost; ended && e.hold.Held != 0 { // otherwise it is unknown
		who += fmt.Sprintf("after %s, ", short(e.hold.Held))
	}
	return fmt.Sprintf("%s  %-11s  %s  %s%s\n", e.Time[11:23], e.Event, listedName(e.Name), who, holderName(e.hold))
}
