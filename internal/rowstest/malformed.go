package rowstest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A MalformedRow is a row of a database into which somebody has written what no driver writes.
type MalformedRow struct {
	Name   string // of the lock
	Change string // part of the statement that writes it

	// Whether a renewal, the list and a waiter report an error for the row.
	RenewFails, ListFails, WaitFails bool

	// Whether a renewal may report an error, after it has extended the lease.
	MayRenew bool

	// Whether the row says that the lease has ended: a renewal reports that, and the waiter gets
	// the lock.
	Ends bool
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

// mustListOthers checks that List lists all locks whose rows can be read, and that its error names
// the first of the others.
func mustListOthers(t *testing.T, d driver.Inspector, names []string, rows []MalformedRow, table string) {
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
		t.Errorf("List = %q, want %q", got, want)
	}
	if len(missing) > 0 {
		MustNameRow(t, "List", err, missing[0], table)
	} else if err != nil {
		t.Errorf("List = %v", err)
	}
}

// MalformedRows acquires locks, queues waiters for them, and makes the rows of some locks
// malformed. Requests about these locks must fail and say why. All other locks must be renewed,
// granted in the order of arrival, and listed. So must the locks of rows for which nothing fails.
// Unless it is nil, broken breaks the lease of "m"
// through d; told has a channel for the loss of each lease.
func MalformedRows(t *testing.T, tb Table, rows []MalformedRow, shared bool,
	broken func(d Driver, m driver.Lease, told map[string]chan error)) {
	holder, first, second := tb.Open(), tb.Open(), tb.Open()
	good := []string{"a", "m", "z"}
	names := slices.Clone(good)
	for _, m := range rows {
		names = append(names, m.Name)
	}
	held, told, waiting := map[string]driver.Lease{}, map[string]chan error{}, map[string]*livetest.Waiter{}
	for _, name := range names {
		told[name] = make(chan error, 1)
		req := rowRequest(name, "holder")
		req.Shared = shared
		req.OnLost = func(why error) { told[name] <- why }
		held[name] = livetest.Acquire(t, holder, req)
		waiting[name] = livetest.Waiting(t, first, rowRequest(name, "first"))
	}
	for _, m := range rows {
		tb.Exec(fmt.Sprintf("UPDATE %s SET %s WHERE name = '%s'", tb.Name, m.Change, m.Name))
	}
	behind := map[string]*livetest.Waiter{}
	for _, name := range good {
		behind[name] = livetest.Waiting(t, second, rowRequest(name, "second"))
	}
	time.Sleep(4 * time.Second) // longer than a waiter keeps its place without a heartbeat

	for _, m := range rows {
		if m.WaitFails {
			MustNameRow(t, "the wait", waiting[m.Name].End(t), m.Name, tb.Name)
			_, err := tryAcquire(t, second, rowRequest(m.Name, "another"))
			MustNameRow(t, "Acquire", err, m.Name, tb.Name)
		} else if !m.Ends {
			waiting[m.Name].Running(t, "while the lock "+m.Name+" is held")
			livetest.CheckHeld(t, second, m.Name, "of "+m.Name)
		}
		if m.ListFails {
			_, err := second.Status(t.Context(), m.Name)
			MustNameRow(t, "Status", err, m.Name, tb.Name)
		}
	}
	mustRenewOthers(t, holder, held, rows, tb.Name)
	for _, m := range rows {
		if m.Ends {
			waiting[m.Name].Get(t)
		}
	}
	mustListOthers(t, second, names, rows, tb.Name)
	if broken != nil {
		broken(second, held["m"], told)
		delete(held, "m")
	}
	for _, name := range good {
		if held[name] != nil {
			livetest.Release(t, held[name])
		}
		waiting[name].Get(t)
		behind[name].Running(t, "before the first waiter released")
	}
}

// mustRenewOthers renews all leases in one call. Renewals must fail with RenewFails, may fail with
// MayRenew, and must succeed for all other leases.
func mustRenewOthers(t *testing.T, d driver.Driver, held map[string]driver.Lease, rows []MalformedRow, table string) {
	t.Helper()
	var names []string
	var due []driver.Lease
	for name, l := range held {
		names, due = append(names, name), append(due, l)
	}
	for i, answer := range d.Renew(t.Context(), due) {
		at := slices.IndexFunc(rows, func(m MalformedRow) bool { return m.Name == names[i] })
		switch {
		case at >= 0 && rows[at].Ends:
			if !errors.Is(answer.Err, driver.ErrLost) {
				t.Errorf("Renew of %q = %.1000v, want ErrLost", names[i], answer.Err)
			}
		case at >= 0 && (rows[at].RenewFails || rows[at].MayRenew && answer.Err != nil):
			MustNameRow(t, "Renew", answer.Err, names[i], table)
		case answer.Err != nil:
			t.Errorf("Renew of %q = %.1000v, want nil", names[i], answer.Err)
		}
	}
}
