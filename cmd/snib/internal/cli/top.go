package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// A topCommand is one call of "snib top".
type topCommand struct {
	*app
	frameLimit  int // 0 means no limit
	order       *choice
	output      *choice
	url, prefix string

	grants  map[string]int // per lock: how often a snapshot showed a new hold
	history []event        // what happened to holds, the oldest first
}

// historyLimit is the largest number of events that snib top remembers, of all locks together.
const historyLimit = 1000

func (a *app) newTopCommand() *cobra.Command {
	t := &topCommand{app: a, grants: make(map[string]int)}
	cmd := &cobra.Command{
		Use:               "top [PREFIX]",
		Short:             "a live view: the busiest locks, holders, waiters, and how long they wait",
		Example:           topExamples,
		Long:              topNotes,
		Args:              atMostOneArg,
		ValidArgsFunction: a.completeName,
	}
	cmd.Flags().IntVarP(&t.frameLimit, "looks", "n", 0, "end after `N` looks, and print each as plain text or JSON")
	t.order = addChoice(cmd, "sort", "s", "which locks come first", sortNames()...)
	t.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if t.frameLimit < 1 && cmd.Flags().Changed("looks") {
			return usagef("--looks %d: give a number of at least 1", t.frameLimit)
		}
		return a.withStore(func(ctx context.Context, s *backend.Store) error {
			t.url, t.prefix = s.URL, strings.Join(args, "")
			switch {
			case t.output.value == "json":
				return t.printFrames(ctx, s, t.frameLimit)
			case t.frameLimit > 0 || !isInteractive():
				return t.printFrames(ctx, s, max(t.frameLimit, 1))
			}
			return t.runInteractive(ctx, s)
		})
	}
	return cmd
}

// isInteractive reports whether a person watches on a terminal that has keys and can be redrawn.
func isInteractive() bool {
	return child.CanRedraw(os.Stdout) && child.IsTerminal(os.Stdin)
}

// observe takes a snapshot at most once a second, and passes each frame to show. It calls
// onOutage at the beginning of each outage.
func (t *topCommand) observe(ctx context.Context, s *backend.Store, show func(frame) error, onOutage func(error)) error {
	o := observer{
		interval:     allInterval,
		takeSnapshot: func() (snapshot, error) { return snapshotAll(ctx, s, t.prefix) },
		onOutage:     onOutage,
		onSnapshot:   func(was, now snapshot, passed time.Duration) error { return show(t.newFrame(was, now, passed)) },
	}
	return o.run(ctx)
}

// errFrameLimit ends observe when all frames were shown.
const errFrameLimit driver.Sentinel = "enough was seen"

// printFrames prints limit frames; 0 means no limit. A snapshot that fails does not count.
func (t *topCommand) printFrames(ctx context.Context, s *backend.Store, limit int) error {
	shown, between := 0, ""
	err := t.observe(ctx, s, func(f frame) error {
		if err := t.report(f, between); err != nil {
			return err
		}
		between = "\n"
		if shown++; shown == limit {
			return errFrameLimit
		}
		return nil
	}, t.reportOutage)
	if errors.Is(err, errFrameLimit) {
		return nil
	}
	return err
}

// report prints a frame; as text, between goes before it.
func (t *topCommand) report(f frame, between string) error {
	return t.print(t.output.value, result{
		document: func() any { return t.toJSON(f) },
		oneLine:  true,
		text:     func() string { return between + f.render(outputWidth()) },
	})
}

func (t *topCommand) toJSON(f frame) topJSON {
	doc := topJSON{Schema: "snib.top/1", Time: timestamp(f.at), Store: t.url, Prefix: t.prefix, Count: f.counts, Locks: []busyLockJSON{}}
	if f.counts.Waiters > 0 {
		doc.Waited = &waitedJSON{seconds(f.waitQuantile(0.5)), seconds(f.waitQuantile(0.9)), seconds(f.waitQuantile(0.99)), seconds(f.waitTimes.max)}
	}
	for _, r := range f.rows {
		doc.Locks = append(doc.Locks, busyLockJSON{toLock(r.status, toHolder), r.grants})
	}
	return doc
}

// runInteractive draws frames on the whole terminal until a key ends it.
func (t *topCommand) runInteractive(ctx context.Context, s *backend.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBreaker(t.app, s)
	m := screen{width: defaultWidth, height: 24, order: sortIndex(t.order.value), checkReason: t.checkReason, release: b.start}
	p := tea.NewProgram(m, tea.WithContext(ctx))
	b.ctx, b.done = ctx, func(notice string) { p.Send(noticeMsg(notice)) }
	ended := make(chan error, 1)
	go func() {
		var last frame
		err := t.observe(ctx, s, func(f frame) error {
			last = f
			p.Send(f)
			return nil
		}, func(err error) {
			last.outage = message(err)
			p.Send(last)
		})
		ended <- err
		if err != nil {
			p.Quit()
		}
	}()
	_, err := p.Run()
	cancel()
	b.end()
	if failed := <-ended; failed != nil && !errors.Is(failed, context.Canceled) {
		return failed
	}
	if err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return failf(exitOutput, "can't draw on the terminal: %w", err)
	}
	return nil
}

// A breaker breaks holds while the terminal shows other things. The audit lines would damage the
// picture, so they are kept until its end, unless standard error goes elsewhere.
type breaker struct {
	ctx     context.Context
	app     app
	store   *backend.Store
	done    func(notice string)
	running sync.WaitGroup
	mu      sync.Mutex // one release after the other
	kept    bytes.Buffer
	err     io.Writer
}

func newBreaker(a *app, s *backend.Store) *breaker {
	b := &breaker{app: *a, store: s, err: a.err}
	if child.IsTerminal(os.Stderr) {
		b.app.err = &b.kept
	}
	return b
}

// start breaks holds in the background.
func (b *breaker) start(name string, holds []driver.Holding, reason string) {
	b.running.Go(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		broken, err := b.app.breakHolds(b.ctx, b.store, name, holds, reason)
		switch {
		case err != nil:
			b.done("not released: " + message(err))
		case len(broken) < len(holds):
			b.done(changedText(name, broken, holds))
		default:
			b.done(fmt.Sprintf("released: %s was %s", printable(name), heldBy(broken[0])))
		}
	})
}

// end waits for the releases that have begun, and writes their audit lines.
func (b *breaker) end() {
	b.running.Wait()
	_, _ = b.kept.WriteTo(b.err) // if standard error is closed, the user can't be told
}
