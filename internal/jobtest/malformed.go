package jobtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
)

// A MalformedRow is a row of a database into which somebody has written what no driver writes.
type MalformedRow struct {
	Name   string // of the lock
	Change string // part of the statement that writes it

	// Whether a renewal, the list and a waiter report an error for the row.
	RenewFails, ListFails, WaitFails bool
}

// MustNameRow checks that err says which row can't be read.
func MustNameRow(t *testing.T, what string, err error, name, table string) {
	t.Helper()
	if !errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%s of %q = %.1000v, want ErrInvalid", what, name, err)
		return
	}
	for _, text := range []string{fmt.Sprintf("%q", name), table} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s of %q = %.1000v, want an error that has %s", what, name, err, text)
		}
	}
	if n := len(err.Error()); n > 1000 {
		t.Errorf("the error of %s of %q has %d bytes, want at most 1000", what, name, n)
	}
}

// MustListOthers lists all locks but those whose rows can't be read. The error names the first of
// these.
func MustListOthers(t *testing.T, d driver.Inspector, names []string, rows []MalformedRow, table string) {
	t.Helper()
	var want, got, missing []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if slices.ContainsFunc(rows, func(m MalformedRow) bool { return m.Name == name && m.ListFails }) {
			missing = append(missing, name)
		} else {
			want = append(want, name)
		}
	}
	err := d.List(t.Context(), "", func(st driver.Status) bool {
		got = append(got, st.Name)
		return true
	})
	if !slices.Equal(got, want) {
		t.Errorf("List told of %q, want %q", got, want)
	}
	MustNameRow(t, "List", err, missing[0], table)
}
