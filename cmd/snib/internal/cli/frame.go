package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// A frame is what snib top shows after one snapshot.
type frame struct {
	url       string
	at        time.Time
	counts    countsJSON
	waitTimes histogram
	rows      []frameRow
	history   []event // what happened to holds, the oldest first
	outage    string  // message of an outage
}

type frameRow struct {
	tableRow
	status          driver.Status
	grants, waiters int
	longest         time.Duration // the longest wait
	held            time.Duration // of the oldest hold
	left            time.Duration // of the hold that ends first
}

// newFrame builds the frame for the snapshot now. was is the snapshot before, or nil, and passed
// the time since then.
func (t *topCommand) newFrame(was, now snapshot, passed time.Duration) frame {
	t.remember(was, now, passed)
	f := frame{url: t.url, at: time.Now(), history: t.history}
	for name, st := range now {
		if len(st.Holders)+len(st.Waiters) == 0 {
			continue
		}
		f.counts.add(st)
		for _, w := range st.Waiters {
			f.waitTimes.record(w.Waited)
		}
		f.rows = append(f.rows, newFrameRow(st, t.grants[name]))
	}
	f.sort(sortIndex(t.order.value))
	return f
}

// remember adds what happened between two snapshots to the history and to the grants.
func (t *topCommand) remember(was, now snapshot, passed time.Duration) {
	var happened []event
	for _, name := range namesIn(was, now) {
		happened = append(happened, holdEvents(name, was, now, passed)...)
	}
	for _, e := range happened {
		if e.Event == eventAcquired || e.Event == eventHanded {
			t.grants[e.Name]++
		}
	}
	// Otherwise a store of short-lived names would fill our memory.
	maps.DeleteFunc(t.grants, func(name string, _ int) bool { _, there := now[name]; return !there })
	t.history = append(t.history, happened...)
	if extra := len(t.history) - historyLimit; extra > 0 {
		t.history = slices.Clone(t.history[extra:]) // frames that are shown keep the old one
	}
}

func newFrameRow(st driver.Status, grants int) frameRow {
	r := frameRow{tableRow: newTableRow(st), status: st, grants: grants, waiters: len(st.Waiters), left: driver.NoExpiry}
	for _, w := range st.Waiters {
		r.longest = max(r.longest, w.Waited)
	}
	for _, h := range st.Holders {
		r.held, r.left = max(r.held, h.Held), min(r.left, h.Left)
	}
	return r
}

// sortOrders are the orders in which snib top can show locks. Those that are equal in one of them
// are in the order of the first, and then by name.
var sortOrders = []struct {
	name    string
	compare func(a, b frameRow) int
}{
	{"busy", func(a, b frameRow) int {
		return cmp.Or(cmp.Compare(b.waiters, a.waiters), cmp.Compare(b.grants, a.grants))
	}},
	{"grants", func(a, b frameRow) int { return cmp.Compare(b.grants, a.grants) }},
	{"longest", func(a, b frameRow) int { return cmp.Compare(b.longest, a.longest) }},
	{"held", func(a, b frameRow) int { return cmp.Compare(b.held, a.held) }},
	{"left", func(a, b frameRow) int { return cmp.Compare(a.left, b.left) }},
	{"name", func(a, b frameRow) int { return strings.Compare(a.status.Name, b.status.Name) }},
}

func sortNames() []string {
	var names []string
	for _, o := range sortOrders {
		names = append(names, o.name)
	}
	return names
}

// sortIndex returns the index of the order of that name, which is one of sortNames.
func sortIndex(name string) int { return slices.Index(sortNames(), name) }

func (f *frame) sort(order int) {
	slices.SortFunc(f.rows, func(a, b frameRow) int {
		return cmp.Or(sortOrders[order].compare(a, b), sortOrders[0].compare(a, b), strings.Compare(a.status.Name, b.status.Name))
	})
}

// matching returns the rows whose name or holder contains text, in any case of letters. The caller
// must not change them.
func (f *frame) matching(text string) []frameRow {
	if text == "" {
		return f.rows // there may be 100,000, and each key asks
	}
	text = strings.ToLower(text)
	var rows []frameRow
	for _, r := range f.rows {
		if strings.Contains(strings.ToLower(r.name), text) || strings.Contains(strings.ToLower(r.holder), text) {
			rows = append(rows, r)
		}
	}
	return rows
}

// of returns the latest events of one lock, the newest first, and at most n of them.
func (f *frame) of(name string, n int) []event {
	var found []event
	for _, e := range slices.Backward(f.history) {
		if len(found) == n {
			break
		}
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// render returns the frame as text, for output that is not redrawn.
func (f *frame) render(width int) string { return f.summary(width) + topTable(f.rows, "", width) }

// summaryHeight is the number of lines of a summary.
const summaryHeight = 4

// summary returns the lines above the table.
func (f *frame) summary(width int) string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(truncate(fmt.Sprintf(format, args...), width) + "\n") }
	line("snib top - %s - %s", f.at.UTC().Format("15:04:05Z"), f.url)
	c := f.counts
	line("%s, %d held by %s; %s", plural(c.Locks, "lock"), c.Held, plural(c.Holders, "holder"), plural(c.Waiters, "waiter"))
	waited := "nobody waits"
	if c.Waiters > 0 {
		waited = fmt.Sprintf("they have waited: p50 %s, p90 %s, p99 %s, at most %s",
			short(f.waitQuantile(0.5)), short(f.waitQuantile(0.9)), short(f.waitQuantile(0.99)), short(f.waitTimes.max))
	}
	line("%s", cmp.Or(f.outage, waited))
	line("")
	return b.String()
}

// topTable returns a table of locks. If selected is not empty, a mark stands before that lock.
func topTable(locks []frameRow, selected string, width int) string {
	mark := map[bool]string{}
	if selected != "" {
		mark = map[bool]string{false: "  ", true: "> "}
	}
	rows := [][]string{{mark[false] + "NAME", "HOLDER", "HELD", "LEFT", "GRANTS", "WAITING", "LONGEST"}}
	for _, r := range locks {
		longest := "-"
		if r.waiters > 0 {
			longest = short(r.longest)
		}
		name := mark[r.status.Name == selected] + r.name
		rows = append(rows, []string{name, r.holder, r.tableRow.held, r.tableRow.left, strconv.Itoa(r.grants), r.waiting, longest})
	}
	fit(rows, width)
	return columns(rows)
}

// waitQuantile returns the time that a share q of the waiters has not exceeded.
func (f *frame) waitQuantile(q float64) time.Duration {
	return time.Duration(f.waitTimes.quantile(q) * float64(time.Second))
}
