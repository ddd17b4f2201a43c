package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	frameLimit int // 0 means no limit
	output     *choice
	url        string

	grants map[string]int // per lock: how often a snapshot showed a new hold
}

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
	t.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if t.frameLimit < 1 && cmd.Flags().Changed("looks") {
			return usagef("--looks %d: give a number of at least 1", t.frameLimit)
		}
		return a.withStore(func(ctx context.Context, s *backend.Store) error {
			t.url = s.URL
			prefix := strings.Join(args, "")
			switch {
			case t.output.value == "json":
				return t.printFrames(ctx, s, prefix, t.frameLimit)
			case t.frameLimit > 0 || !isInteractive():
				return t.printFrames(ctx, s, prefix, max(t.frameLimit, 1))
			}
			return t.runInteractive(ctx, s, prefix)
		})
	}
	return cmd
}

// isInteractive reports whether a person watches on a terminal that has keys and can be redrawn.
func isInteractive() bool {
	return child.IsTerminal(syscall.Stdout) && child.IsTerminal(syscall.Stdin) && os.Getenv("TERM") != "dumb"
}

// A frame is what snib top shows after one snapshot.
type frame struct {
	url       string
	at        time.Time
	counts    countsJSON
	waitTimes histogram
	rows      []frameRow // the busiest first
	outage    string     // message of an outage
}

type frameRow struct {
	tableRow
	status          driver.Status
	grants, waiters int
	longest         time.Duration // the longest wait
}

// newFrame builds the frame for the snapshot now. was is the snapshot before, or nil.
func (t *topCommand) newFrame(was, now snapshot) frame {
	sc := frame{url: t.url, at: time.Now()}
	for name, st := range now {
		if len(st.Holders)+len(st.Waiters) == 0 {
			continue
		}
		if was != nil {
			t.grants[name] += len(holdsNotIn(st.Holders, was[name].Holders))
		}
		sc.counts.add(st)
		r := frameRow{tableRow: newTableRow(st), status: st, grants: t.grants[name], waiters: len(st.Waiters)}
		for _, w := range st.Waiters {
			sc.waitTimes.record(w.Waited)
			r.longest = max(r.longest, w.Waited)
		}
		sc.rows = append(sc.rows, r)
	}
	for name := range t.grants {
		if _, there := now[name]; !there {
			delete(t.grants, name) // otherwise a store of short-lived names would fill our memory
		}
	}
	slices.SortFunc(sc.rows, func(a, b frameRow) int {
		return cmp.Or(cmp.Compare(b.waiters, a.waiters), cmp.Compare(b.grants, a.grants), strings.Compare(a.name, b.name))
	})
	return sc
}

// render draws the frame within width columns and height-1 lines. A height of 0 means no limit.
func (sc *frame) render(width, height int) string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(truncate(fmt.Sprintf(format, args...), width) + "\n") }
	line("snib top - %s - %s", sc.at.UTC().Format("15:04:05Z"), sc.url)
	c := sc.counts
	line("%s, %d held by %s; %s", plural(c.Locks, "lock"), c.Held, plural(c.Holders, "holder"), plural(c.Waiters, "waiter"))
	waited := "nobody waits"
	if c.Waiters > 0 {
		waited = fmt.Sprintf("they have waited: p50 %s, p90 %s, p99 %s, at most %s",
			short(sc.waitQuantile(0.5)), short(sc.waitQuantile(0.9)), short(sc.waitQuantile(0.99)), short(sc.waitTimes.max))
	}
	line("%s", cmp.Or(sc.outage, waited))
	line("")
	rows := [][]string{{"NAME", "HOLDER", "HELD", "LEFT", "GRANTS", "WAITING", "LONGEST"}}
	for i, r := range sc.rows {
		if height > 0 && i >= height-6 {
			break
		}
		longest := "-"
		if r.waiters > 0 {
			longest = short(r.longest)
		}
		rows = append(rows, []string{r.name, r.holder, r.held, r.left, strconv.Itoa(r.grants), r.waiting, longest})
	}
	fit(rows, width)
	b.WriteString(columns(rows))
	return b.String()
}

// waitQuantile returns the time that a share q of the waiters has not exceeded.
func (sc *frame) waitQuantile(q float64) time.Duration {
	return time.Duration(sc.waitTimes.quantile(q) * float64(time.Second))
}

// observe takes a snapshot at most once a second, and passes each frame to show. It calls
// onOutage at the beginning of each outage.
func (t *topCommand) observe(ctx context.Context, s *backend.Store, prefix string, show func(frame) error, onOutage func(error)) error {
	o := observer{
		interval:     allInterval,
		takeSnapshot: func() (snapshot, error) { return snapshotAll(ctx, s, prefix) },
		onOutage:     onOutage,
		onSnapshot:   func(was, now snapshot, _ time.Duration) error { return show(t.newFrame(was, now)) },
	}
	return o.run(ctx)
}

// errFrameLimit ends observe when all frames were shown.
const errFrameLimit driver.Sentinel = "enough was seen"

// printFrames prints limit frames; 0 means no limit. A snapshot that fails does not count.
func (t *topCommand) printFrames(ctx context.Context, s *backend.Store, prefix string, limit int) error {
	shown, between := 0, ""
	err := t.observe(ctx, s, prefix, func(sc frame) error {
		if err := t.report(sc, prefix, between); err != nil {
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
func (t *topCommand) report(sc frame, prefix, between string) error {
	return t.print(t.output.value, result{
		document: func() any { return toTop(sc, prefix) },
		oneLine:  true,
		text:     func() string { return between + sc.render(max(defaultWidth, child.Width(syscall.Stdout)), 0) },
	})
}

func toTop(sc frame, prefix string) topJSON {
	doc := topJSON{Schema: "snib.top/1", Time: timestamp(sc.at), Store: sc.url, Prefix: prefix, Count: sc.counts, Locks: []busyLockJSON{}}
	if sc.counts.Waiters > 0 {
		doc.Waited = &waitedJSON{seconds(sc.waitQuantile(0.5)), seconds(sc.waitQuantile(0.9)), seconds(sc.waitQuantile(0.99)), seconds(sc.waitTimes.max)}
	}
	for _, r := range sc.rows {
		doc.Locks = append(doc.Locks, busyLockJSON{toLock(r.status, toHolder), r.grants})
	}
	return doc
}

// runInteractive draws frames on the whole terminal until a key ends it.
func (t *topCommand) runInteractive(ctx context.Context, s *backend.Store, prefix string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := tea.NewProgram(screen{width: defaultWidth, height: 24}, tea.WithContext(ctx))
	ended := make(chan error, 1)
	go func() {
		var last frame
		err := t.observe(ctx, s, prefix, func(sc frame) error {
			last = sc
			p.Send(sc)
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
	if failed := <-ended; failed != nil && !errors.Is(failed, context.Canceled) {
		return failed
	}
	if err != nil && !errors.Is(err, tea.ErrInterrupted) {
		return failf(exitOutput, "can't draw on the terminal: %w", err)
	}
	return nil
}

// A screen is the bubbletea model of the terminal.
type screen struct {
	width, height int
	frame         frame
}

func (screen) Init() tea.Cmd { return nil }

func (m screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case frame:
		m.frame = msg
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		}
	}
	return m, nil
}

func (m screen) View() tea.View {
	text := "snib top: looking\n"
	if !m.frame.at.IsZero() {
		text = m.frame.render(m.width, m.height)
	}
	v := tea.NewView(text + "q to quit")
	v.AltScreen = true
	return v
}
