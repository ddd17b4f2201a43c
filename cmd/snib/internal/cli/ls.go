package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

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
	output := addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if *count && output.value == "name" {
			return usagef("--count prints one table, or -o json: drop -o name")
		}
		prefix := strings.Join(args, "")
		return a.withStore(backend.Look, func(ctx context.Context, s *backend.Store) error {
			if *count {
				return a.count(ctx, s, prefix, *foreign, output.value)
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
			return lsJSON{"snib.ls/1", s.URL, convert(all, func(st driver.Status) lockJSON { return toLock(st) })}
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

// table returns locks as a table, or "" if there are none.
func table(all []driver.Status) string {
	if len(all) == 0 {
		return ""
	}
	rows := [][]string{{"NAME", "HOLDER", "HELD", "LEFT", "TOKEN", "WAITING"}}
	for _, st := range all {
		rows = append(rows, tableRow(st))
	}
	return columns(rows)
}

// tableRow returns the cells of a lock in the table.
func tableRow(st driver.Status) []string {
	name, waiting := listedName(st.Name), strconv.Itoa(len(st.Waiters))
	if len(st.Holders) == 0 {
		return []string{name, "-", "-", "-", "-", waiting}
	}
	first := st.Holders[0]
	holder, held, left := holderName(first), "-", leaseLeft(first)
	if first.Inherited {
		left = "inherited"
	}
	if first.Held != 0 { // otherwise it is unknown
		held = short(first.Held)
	}
	switch n := len(st.Holders); {
	case st.Slots > 0:
		holder = fmt.Sprintf("%d of %d: %s", n, st.Slots, holder)
	case st.Shared:
		holder = fmt.Sprintf("%d shared: %s", n, holder)
	}
	return []string{name, holder, held, left, tokenText(first), waiting}
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
