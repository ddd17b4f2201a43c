package cli

import (
	"context"
	"fmt"
	"io"
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

// narrow is the width of tables that nobody looks at on a terminal.
const narrow = 80

func (a *app) lsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls [PREFIX]",
		Short:             "list the locks that are held or waited for",
		Example:           lsExamples,
		ValidArgsFunction: a.completeName,
		Args:              atMostOne,
	}
	output := addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.view(func(ctx context.Context, s *backend.Store) error {
			return a.ls(ctx, s, strings.Join(args, ""), output.value)
		})
	}
	return cmd
}

// ls prints what a store lists. Where that ends with an error, as with a part of a Redis Cluster that is down, what came before is printed,
// too, if anything did.
func (a *app) ls(ctx context.Context, s *backend.Store, prefix, output string) error {
	all, err := list(ctx, s, prefix)
	if err == nil || len(all) > 0 {
		if unprinted := a.printList(s, all, output); err == nil {
			return unprinted
		}
	}
	return err
}

// list collects the locks whose names start with prefix, in the order of their names, each once.
func list(ctx context.Context, s *backend.Store, prefix string) ([]driver.Status, error) {
	var all []driver.Status
	err := each(ctx, s, prefix, func(st driver.Status) bool {
		all = append(all, st)
		return true
	})
	slices.SortStableFunc(all, func(a, b driver.Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b driver.Status) bool { return a.Name == b.Name }), err
}

func (a *app) printList(s *backend.Store, all []driver.Status, output string) error {
	switch output {
	case "json":
		doc := struct {
			Schema string              `json:"schema"`
			Store  string              `json:"store"`
			Locks  []inheritedLockJSON `json:"locks"`
		}{"snib.ls/1", s.URL, []inheritedLockJSON{}}
		for _, st := range all {
			doc.Locks = append(doc.Locks, toInheritedLock(st))
		}
		return a.printJSON(doc)
	case "name":
		for _, st := range all {
			if err := a.printf("%s\n", listed(st.Name)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		a.tell("no lock is held or waited for in %s", printable(s.URL))
		return nil
	}
	return a.printTable(all)
}

// listed is the name of a lock as it is listed. One that looks as if it were quoted is quoted, so
// that no two names are listed alike.
func listed(name string) string {
	if strings.HasPrefix(name, `"`) {
		return strconv.Quote(name)
	}
	return printable(name)
}

// columns are the cells of one row of the table.
type columns struct{ name, holder, held, left, token, waiting string }

func row(st driver.Status) columns {
	c := columns{
		name: listed(st.Name), holder: "-", held: "-", left: "-", token: "-", waiting: strconv.Itoa(len(st.Waiters)),
	}
	if len(st.Holders) == 0 {
		return c
	}
	first := st.Holders[0]
	c.holder, c.left, c.token = who(first), left(first), token(first)
	if first.Inherited { // by what its process started
		c.left = "kept"
	}
	if first.Held != 0 { // else it is not known
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

func (a *app) printTable(all []driver.Status) error {
	rows := [][]string{{"NAME", "HOLDER", "HELD", "LEFT", "TOKEN", "WAITING"}}
	for _, st := range all {
		c := row(st)
		rows = append(rows, []string{c.name, c.holder, c.held, c.left, c.token, c.waiting})
	}
	return table(outputTo{a.out}, rows, max(narrow, child.Width(syscall.Stdout)))
}

// table prints rows of equal length in columns. If they are wider than width, names and holders are shortened, which are the first two.
func table(out io.Writer, rows [][]string, width int) error {
	fit(rows, width)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// fit shortens the first two cells of each row so that the table is no wider than width.
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
		row[0], row[1] = cut(row[0], name), cut(row[1], holder)
	}
}
