package cli

import (
	"context"
	"errors"
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
	output := addOutput(cmd, "table", "json", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return a.withStore(func(ctx context.Context, s *backend.Store) error {
			return a.ls(ctx, s, strings.Join(args, ""), *foreign, output.value)
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
// those of other libraries if foreign is set; snib knows such a lock, too, if it waits for it.
func list(ctx context.Context, s *backend.Store, prefix string, foreign bool) ([]driver.Status, error) {
	var all []driver.Status
	add := func(st driver.Status) bool { all = append(all, st); return true }
	err := forEachLock(ctx, s, prefix, add)
	if err == nil && foreign {
		if err = s.Foreign(ctx, prefix, add); errors.Is(err, errors.ErrUnsupported) {
			err = failf(exitConfig, "--foreign: only in Redis can locks of other libraries be listed beside those of snib")
		}
	}
	slices.SortStableFunc(all, func(a, b driver.Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b driver.Status) bool { return a.Name == b.Name }), err
}

func (a *app) printList(s *backend.Store, all []driver.Status, output string) error {
	note := ""
	if len(all) == 0 {
		note = "no lock is held or waited for in " + printable(s.URL)
	}
	return a.print(output, result{
		document: func() any { return lsJSON{"snib.ls/1", s.URL, convert(all, toLock)} },
		names:    func() []string { return convert(all, func(st driver.Status) string { return listedName(st.Name) }) },
		text:     func() string { return table(all) },
		note:     note,
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
	if first.Inherited { // an heir keeps it
		left = "kept"
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

// forEachLock calls fn for the locks whose names start with prefix, one at a
// time, until fn returns false.
func forEachLock(ctx context.Context, s *backend.Store, prefix string, fn func(driver.Status) bool) error {
	if err := s.List(ctx, prefix, fn); err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	return nil
}
