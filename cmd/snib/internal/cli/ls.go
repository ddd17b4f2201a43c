package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
)

// defaultWidth is the width that a table may have if standard output is no terminal, or a narrower
// one.
const defaultWidth = 80

func (a *app) newLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls [PREFIX]",
		Short:             "list the locks that are held or waited for",
		Example:           lsExamples,
		ValidArgsFunction: a.completeName,
		Args:              atMostOneArg,
	}
	output := addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withStore(func(ctx context.Context, s *backend.Store) error {
			return a.ls(ctx, s, strings.Join(args, ""), output.value)
		})
	}
	return cmd
}

// ls prints the locks of a store. If listing ends with an error, for example because a part of
// a Redis Cluster is down, ls still prints the locks that came before it, if any.
func (a *app) ls(ctx context.Context, s *backend.Store, prefix, output string) error {
	all, err := list(ctx, s, prefix)
	if err == nil || len(all) > 0 {
		if unprinted := a.printList(s, all, output); err == nil {
			return unprinted
		}
	}
	return err
}

// list returns the locks whose names start with prefix, sorted by name, each once.
func list(ctx context.Context, s *backend.Store, prefix string) ([]driver.Status, error) {
	var all []driver.Status
	err := forEachLock(ctx, s, prefix, func(st driver.Status) bool {
		all = append(all, st)
		return true
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
		text:  func() string { return table(all) },
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

// table returns locks as a table, or "" if there are none.
func table(all []driver.Status) string {
	if len(all) == 0 {
		return ""
	}
	rows := [][]string{{"NAME", "HOLDER", "HELD", "LEFT", "TOKEN", "WAITING"}}
	for _, st := range all {
		c := newTableRow(st)
		rows = append(rows, []string{c.name, c.holder, c.held, c.left, c.token, c.waiting})
	}
	fit(rows, max(defaultWidth, child.Width(syscall.Stdout)))
	return columns(rows)
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
