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

// A topping is one "snib top".
type topping struct {
	*app
	looks  int // 0 if nothing bounds them
	output *choice
	url    string

	grants map[string]int // how often a lock was seen with a holder that it did not have before
}

func (a *app) topCommand() *cobra.Command {
	t := &topping{app: a, grants: make(map[string]int)}
	cmd := &cobra.Command{
		Use:               "top [PREFIX]",
		Short:             "a live view: the busiest locks, holders, waiters, and how long they wait",
		Example:           topExamples,
		Long:              topNotes,
		Args:              atMostOne,
		ValidArgsFunction: a.completeName,
	}
	cmd.Flags().IntVarP(&t.looks, "looks", "n", 0, "end after `N` looks, and print each as plain text or JSON")
	t.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if t.looks < 1 && cmd.Flags().Changed("looks") {
			return usagef("--looks %d: it is to be 1 or more", t.looks)
		}
		return a.view(func(ctx context.Context, s *backend.Store) error {
			t.url = s.URL
			prefix := strings.Join(args, "")
			switch {
			case t.output.value == "json":
				return t.printLooks(ctx, s, prefix, t.looks, func(sc scene) error { return t.printScene(sc, prefix) })
			case t.looks > 0 || !live():
				return t.printLooks(ctx, s, prefix, max(t.looks, 1), t.plain())
			}
			return t.live(ctx, s, prefix)
		})
	}
	return cmd
}

// live reports whether a person watches, on a terminal that can be drawn on and that has keys.
func live() bool {
	return child.IsTerminal(syscall.Stdout) && child.IsTerminal(syscall.Stdin) && os.Getenv("TERM") != "dumb"
}

// A scene is what there is to see after a look.
type scene struct {
	url    string
	at     time.Time
	census census
	waits  times
	rows   []sceneRow // the busiest first
	note   string     // of an outage
}

type sceneRow struct {
	columns
	status          driver.Status
	grants, waiters int
	longest         time.Duration // of who waits
}

// scene adds up what was seen.
func (t *topping) scene(was, now snapshot) scene {
	sc := scene{url: t.url, at: time.Now()}
	for name, st := range now {
		if len(st.Holders)+len(st.Waiters) == 0 {
			continue
		}
		if was != nil {
			t.grants[name] += len(changed(st.Holders, was[name].Holders))
		}
		sc.census.add(st)
		r := sceneRow{columns: row(st), status: st, grants: t.grants[name], waiters: len(st.Waiters)}
		for _, w := range st.Waiters {
			sc.waits.note(w.Waited)
			r.longest = max(r.longest, w.Waited)
		}
		sc.rows = append(sc.rows, r)
	}
	for name := range t.grants {
		if _, there := now[name]; !there {
			delete(t.grants, name) // else a store of passing names would fill our memory
		}
	}
	slices.SortFunc(sc.rows, func(a, b sceneRow) int {
		return cmp.Or(cmp.Compare(b.waiters, a.waiters), cmp.Compare(b.grants, a.grants), strings.Compare(a.name, b.name))
	})
	return sc
}

// render draws the scene in so many columns, and one line less than there are; 0 lines are as many as it takes.
func (sc *scene) render(width, height int) string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(cut(fmt.Sprintf(format, args...), width) + "\n") }
	line("snib top - %s - %s", sc.at.UTC().Format("15:04:05Z"), sc.url)
	c := sc.census
	line("%s, %d held by %s; %s", plural(c.Locks, "lock"), c.Held, plural(c.Holders, "holder"), plural(c.Waiters, "waiter"))
	waited := "nobody waits"
	if c.Waiters > 0 {
		waited = fmt.Sprintf("they have waited: p50 %s, p90 %s, p99 %s, at most %s",
			short(sc.waited(0.5)), short(sc.waited(0.9)), short(sc.waited(0.99)), short(sc.waits.most))
	}
	line("%s", cmp.Or(sc.note, waited))
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
	_ = table(&b, rows, width) // to a strings.Builder
	return b.String()
}

// waited is how long a share q of those who wait has waited at most.
func (sc *scene) waited(q float64) time.Duration {
	return time.Duration(sc.waits.quantile(q) * float64(time.Second))
}

// observe looks once a second, at most, and gives each scene to show. Outages begin with fails.
func (t *topping) observe(ctx context.Context, s *backend.Store, prefix string, show func(scene) error, fails func(error)) error {
	o := observer{
		every: everyAll,
		look:  func() (snapshot, error) { return lookAll(ctx, s, prefix) },
		fails: fails,
		seen:  func(was, now snapshot, _ time.Duration) error { return show(t.scene(was, now)) },
	}
	return o.run(ctx)
}

// errEnough ends what observes.
const errEnough driver.Sentinel = "enough was seen"

// printLooks has so many scenes printed; 0 are without an end. A look that fails is not one of them.
func (t *topping) printLooks(ctx context.Context, s *backend.Store, prefix string, looks int, show func(scene) error) error {
	seen := 0
	err := t.observe(ctx, s, prefix, func(sc scene) error {
		if err := show(sc); err != nil {
			return err
		}
		if seen++; seen == looks {
			return errEnough
		}
		return nil
	}, t.lookOn)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// plain returns what prints scenes as text, with an empty line between them.
func (t *topping) plain() func(scene) error {
	between := ""
	return func(sc scene) error {
		text := between + sc.render(max(narrow, child.Width(syscall.Stdout)), 0)
		between = "\n"
		return t.printf("%s", text)
	}
}

// topJSON is a look as a document.
type topJSON struct {
	Schema string      `json:"schema"`
	Time   string      `json:"time"`
	Store  string      `json:"store"`
	Prefix string      `json:"prefix"`
	Count  census      `json:"count"`
	Waited *waitedJSON `json:"waited,omitempty"` // nil if nobody waits
	Locks  []busyJSON  `json:"locks"`            // the busiest first
}

type waitedJSON struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Most float64 `json:"max"`
}

type busyJSON struct {
	lockJSON
	Grants int `json:"grants"`
}

// printScene prints a scene as one line.
func (t *topping) printScene(sc scene, prefix string) error {
	doc := topJSON{Schema: "snib.top/1", Time: stamp(sc.at), Store: sc.url, Prefix: prefix, Count: sc.census, Locks: []busyJSON{}}
	if sc.census.Waiters > 0 {
		doc.Waited = &waitedJSON{seconds(sc.waited(0.5)), seconds(sc.waited(0.9)), seconds(sc.waited(0.99)), seconds(sc.waits.most)}
	}
	for _, r := range sc.rows {
		doc.Locks = append(doc.Locks, busyJSON{toJSON(r.status), r.grants})
	}
	text, err := marshal(doc)
	if err != nil {
		return err
	}
	return t.printf("%s\n", text)
}

// live draws scenes on the whole terminal until a key ends it.
func (t *topping) live(ctx context.Context, s *backend.Store, prefix string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := tea.NewProgram(screen{width: narrow, height: 24}, tea.WithContext(ctx))
	ended := make(chan error, 1)
	go func() {
		var last scene
		err := t.observe(ctx, s, prefix, func(sc scene) error {
			last = sc
			p.Send(sc)
			return nil
		}, func(err error) {
			last.note = message(err)
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
		return fail(exitOutput, "the terminal can't be drawn on: %w", err)
	}
	return nil
}

// A screen is the model of the terminal.
type screen struct {
	width, height int
	scene         scene
}

func (screen) Init() tea.Cmd { return nil }

func (m screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case scene:
		m.scene = msg
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
	if !m.scene.at.IsZero() {
		text = m.scene.render(m.width, m.height)
	}
	v := tea.NewView(text + "q to quit")
	v.AltScreen = true
	return v
}
