package cli

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// defaultWidth is the width that a table may have on a terminal that is narrower, or whose width is
// unknown.
const defaultWidth = 80

// unlimited is the width of a table that nothing is cut from.
const unlimited = math.MaxInt

// outputWidth returns how wide a line on standard output may be: as wide as the terminal, or
// unlimited if standard output is a file or a pipe, whose reader wants whole names.
func outputWidth() int {
	if !child.IsTerminal(os.Stdout) {
		return unlimited
	}
	return max(defaultWidth, child.Width(os.Stdout))
}

func (a *app) newLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls [PREFIX]",
		Short:             "list the locks that are held or waited for",
		Example:           lsExamples,
		Long:              lsNotes,
		ValidArgsFunction: a.completeName,
		Args:              oneDisplayed,
	}
	foreign := cmd.Flags().Bool("foreign", false, "also locks of other libraries, in Redis")
	count := cmd.Flags().Bool("count", false, "only how many locks, holders and waiters there are")
	null := cmd.Flags().BoolP("null", "0", false, "names only, unquoted, each followed by a NUL byte, for xargs -0")
	interval := addDuration(cmd, "watch", "", "print the table again each second, or each `INTERVAL`", 0, oneInterval)
	cmd.Flags().Lookup("watch").NoOptDefVal = allInterval.String()
	output := addOutput(cmd, "table", "wide", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case *null && cmd.Flags().Changed("output") && output.value != "name":
			return usagef("--null prints names only: drop it, or -o %s", output.value)
		case *null:
			output.value = "null"
		}
		switch {
		case *count && (interval.set || output.value != "table" && output.value != "json"):
			return usagef("--count prints one table, or -o json: drop --watch, --null and other formats")
		case interval.set && output.value != "table" && output.value != "wide":
			return usagef("--watch prints tables only; snib watch -o json is for programs")
		}
		prefix := strings.Join(args, "")
		if err := new(duration).Set(prefix); err == nil && interval.set && interval.value == allInterval {
			return usagef("an INTERVAL follows a =: --watch=%s; as a PREFIX, %[1]s needs one, too", prefix)
		}
		return a.withStore(func(ctx context.Context, s *backend.Store) error {
			switch {
			case *count:
				return a.count(ctx, s, prefix, *foreign, output.value)
			case interval.set:
				return a.watchList(ctx, s, prefix, *foreign, output.value, interval.value)
			}
			return a.ls(ctx, s, prefix, *foreign, output.value)
		})
	}
	return cmd
}

// ls prints the locks of a store. If listing ends with an error, for example because a part of
// a Redis Cluster is down, ls still prints the locks that came before it, if any.
func (a *app) ls(ctx context.Context, s *backend.Store, prefix string, foreign bool, output string) error {
	all, err := list(ctx, s, prefix, foreign)
	if err == nil || len(all) > 0 {
		if unprinted := a.printList(s, all, output); err == nil {
			return unprinted
		}
	}
	return err
}

// watchList prints the locks of a store at most once per interval, until the process ends. It
// tolerates outages as snib watch does.
func (a *app) watchList(ctx context.Context, s *backend.Store, prefix string, foreign bool, output string,
	interval time.Duration) error {
	heading, height := "---- %s  %s\n", 0
	if child.CanRedraw(os.Stdout) {
		// The cursor goes to the top left, and all below is erased.
		heading, height = "\x1b[H\x1b[J%s  %s\n", child.Height(os.Stdout)
	}
	var all []driver.Status
	o := observer{
		interval: interval,
		takeSnapshot: func() (_ snapshot, err error) {
			all, err = list(ctx, s, prefix, foreign)
			return snapshot{}, err
		},
		onOutage: a.reportOutage,
		onSnapshot: func(_, _ snapshot, _ time.Duration) error {
			if err := a.printf(heading, time.Now().UTC().Format("15:04:05Z"), printable(s.URL)); err != nil {
				return err
			}
			if text := listText(all, output); text != "" && height > 0 {
				return a.printf("%s", cutLines(text, height-2)) // the heading, and the line of the cursor
			}
			return a.printList(s, all, output)
		},
	}
	return o.run(ctx)
}

// cutLines returns the first lines of a text, n at most, the last of which says how many are
// missing.
func cutLines(text string, n int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if n < 2 || len(lines) <= n {
		return text
	}
	return strings.Join(lines[:n-1], "") + fmt.Sprintf("... %d more lines\n", len(lines)-n+1)
}

// listText returns locks as the table that output names, or "" if there are none.
func listText(all []driver.Status, output string) string {
	if output == "wide" {
		return wideTable(all)
	}
	return table(all, outputWidth())
}

// list returns the locks whose names start with prefix, sorted by name, each once. It includes
// those of other libraries if foreign is set.
func list(ctx context.Context, s *backend.Store, prefix string, foreign bool) ([]driver.Status, error) {
	var all []driver.Status
	err := forEachLockOf(ctx, s, prefix, foreign, func(st driver.Status) {
		all = append(all, st)
	})
	slices.SortStableFunc(all, func(a, b driver.Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b driver.Status) bool { return a.Name == b.Name }), err
}

func (a *app) printList(s *backend.Store, all []driver.Status, output string) error {
	note := ""
	if len(all) == 0 {
		note = "no lock is held or waited for in " + printable(s.URL)
	}
	return a.print(output, result{
		document: func() any {
			return lsJSON{"snib.ls/1", s.URL, convert(all, func(st driver.Status) lockJSON { return toLock(st, toHolderWithHeirs) })}
		},
		names: func() []string { return convert(all, func(st driver.Status) string { return listedName(st.Name) }) },
		raw:   func() string { return nullTerminated(all) },
		text:  func() string { return listText(all, output) },
		note:  note,
	})
}

// listedName returns the name of a lock for a list. It quotes a name that looks quoted, so that
// no two names are listed alike.
func listedName(name string) string {
	if strings.HasPrefix(name, `"`) {
		return strconv.Quote(name)
	}
	return printable(name)
}

// A tableRow has the cells of one row of the table.
type tableRow struct{ name, holder, held, left, token, waiting string }

func newTableRow(st driver.Status) tableRow {
	c := tableRow{
		name: listedName(st.Name), holder: "-", held: "-", left: "-", token: "-", waiting: strconv.Itoa(len(st.Waiters)),
	}
	if len(st.Holders) == 0 {
		return c
	}
	first := st.Holders[0]
	c.holder, c.left, c.token = holderName(first), leaseLeft(first), tokenText(first)
	if first.Inherited { // an heir keeps it
		c.left = "kept"
	}
	if first.Held != 0 { // otherwise it is unknown
		c.held = short(first.Held)
	}
	switch n := len(st.Holders); {
	case st.Slots > 0:
		c.holder = fmt.Sprintf("%d of %d: %s", n, st.Slots, c.holder)
	case st.Shared:
		c.holder = fmt.Sprintf("%d shared: %s", n, c.holder)
	}
	return c
}

// nullTerminated returns the names of locks, exactly as they are.
func nullTerminated(all []driver.Status) string {
	var b strings.Builder
	for _, st := range all {
		b.WriteString(st.Name + "\x00") // no name contains it
	}
	return b.String()
}

// table returns locks as a table within width columns, or "" if there are none.
func table(all []driver.Status, width int) string {
	if len(all) == 0 {
		return ""
	}
	rows := [][]string{{"NAME", "HOLDER", "HELD", "LEFT", "TOKEN", "WAITING"}}
	for _, st := range all {
		c := newTableRow(st)
		rows = append(rows, []string{c.name, c.holder, c.held, c.left, c.token, c.waiting})
	}
	fit(rows, width)
	return columns(rows)
}

// wideTable returns locks as a table with a row for each hold, and more columns. Nothing is cut. It
// returns "" if there are no locks.
func wideTable(all []driver.Status) string {
	if len(all) == 0 {
		return ""
	}
	rows := [][]string{{"NAME", "MODE", "HOLDER", "HELD", "LEFT", "TOKEN", "WAITING", "LONGEST"}}
	for _, st := range all {
		longest := longestWait(st)
		for _, one := range eachHold(st) {
			c := newTableRow(one)
			rows = append(rows, []string{c.name, slotMode(st), c.holder, c.held, c.left, c.token, c.waiting, longest})
		}
	}
	return columns(rows)
}

// eachHold returns a copy of the lock for each of its holds, as if that were the only one and
// exclusive. A lock that nobody holds is returned as it is.
func eachHold(st driver.Status) []driver.Status {
	if len(st.Holders) == 0 {
		return []driver.Status{st}
	}
	return convert(st.Holders, func(h driver.Holding) driver.Status {
		return driver.Status{Name: st.Name, Holders: []driver.Holding{h}, Waiters: st.Waiters}
	})
}

// slotMode returns how a lock is held, and for a semaphore how many of its slots are taken.
func slotMode(st driver.Status) string {
	if m := mode(st); m != "slots" {
		return m
	}
	return fmt.Sprintf("slots %d/%d", len(st.Holders), st.Slots)
}

// longestWait returns for how long the waiter has waited that has waited longest, or "-" if nobody
// waits.
func longestWait(st driver.Status) string {
	if len(st.Waiters) == 0 {
		return "-"
	}
	var longest time.Duration
	for _, w := range st.Waiters {
		longest = max(longest, w.Waited)
	}
	return short(longest)
}

// columns returns rows of equal length in columns.
func columns(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

// fit shortens names and holders, the first two cells of each row, so that the table is no wider
// than width.
func fit(rows [][]string, width int) {
	if width == unlimited {
		return
	}
	widest := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widest[i] = max(widest[i], len([]rune(cell)))
		}
	}
	room := width - 2*(len(widest)-1) // the gaps
	for _, w := range widest[2:] {
		room -= w
	}
	name, holder := widest[0], widest[1]
	if name+holder > room {
		name = min(name, max(room/2, room-holder))
		holder = room - name
	}
	for _, row := range rows {
		row[0], row[1] = truncate(row[0], name), truncate(row[1], holder)
	}
}
