package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// A task is a purpose for a lock, and the lock that we recommend for it.
type task struct {
	Task string `json:"task"` // the purpose
	Lock string `json:"lock"` // the lock that we recommend
	Why  string `json:"why"`  // the reason
}

func tasks() []task {
	return []task{
		{
			"deduplicate idempotent work: a cache to fill, a report to send once",
			"any store at hand, such as one Redis; snib run --skip, or TryAcquire",
			"efficiency: if two run nevertheless, work is wasted, but nothing breaks",
		},
		{
			"an ordinary business mutex: one job at a time, one editor of a document",
			"the store that you run anyway: SQLite on one host, else Redis with failover-grace, or rows in PostgreSQL or MariaDB",
			"two holders at a time are rare and can be repaired; tokens in the data tell which write came later",
		},
		{
			"money and stock: a holder that is late must never write",
			"rows in the database that keeps the data, RequireFencing(FencingDurable), and a guard of package fence at the data: " +
				"an optimistic lock, whose version column is the token",
			"a paused holder does not know that its lease is over; only the resource can refuse it, by its token",
		},
		{
			"strong consistency across services that share no database",
			"etcd or ZooKeeper, RequireFencing(FencingDurable), and a token check at each resource",
			"a majority keeps locks and tokens through failovers and partitions, whatever clocks show",
		},
		{
			"the banking core: several rows of one database, all or nothing",
			"a transaction lock in that database: pglock.Tx or mysqllock.Tx",
			"lock and data commit together; there is no lease that could end before the commit",
		},
	}
}

// A speed is a measured figure. It appears in docs/performance.md, with the conditions.
type speed struct {
	Backend string `json:"backend"` // the kind of store
	Figure  string `json:"figure"`  // the result, with its unit
	What    string `json:"what"`    // what was measured
}

func speeds() []speed {
	return []speed{
		{"memory", "1.89 µs", "processor time of an uncontended cycle"},
		{"sqlite", "230 µs", "an uncontended cycle, the grant on the disk first"},
		{"sqlite", "384 µs", "from Release in one driver to the grant in another"},
		{"redis", "9.7k/s", "uncontended cycles of one goroutine, over loopback"},
		{"redis", "297 µs", "a hand-over between two processes, p50"},
		{"redlock", "4,802/s", "uncontended cycles of one goroutine, over five servers"},
		{"postgres", "2,940/s", "uncontended cycles of a row"},
		{"mysql", "2,634/s", "the same on MariaDB"},
		{"zookeeper", "868/s", "uncontended cycles of one goroutine"},
		{"zookeeper", "746 µs", "a hand-over between two processes, p50"},
		{"etcd", "670/s", "uncontended cycles of one goroutine"},
	}
}

// guide is the question to ask first.
const guide = `What happens if two hold the lock at the same time?

Efficiency: work is done twice. Take any store at hand. A lock that holds nearly
always is enough, and the cheapest is best.

Correctness: data is damaged. Then no lock alone is enough, in any store: a
holder can be paused for longer than its lease, and write when another holds the
lock already. Let the resource compare fencing tokens (package fence), or keep
lock and data in one transaction of one database.
`

func (a *app) newExplainCommand() *cobra.Command {
	var names []string
	for _, i := range backend.Promises() {
		names = append(names, i.Backend)
	}
	cmd := &cobra.Command{
		Use:       "explain [BACKEND]",
		Short:     "compare the stores: what each promises, and what may break the promise",
		Example:   explainExamples,
		Long:      "  BACKEND is " + strings.Join(names[:len(names)-1], ", ") + "\n  or " + names[len(names)-1] + ".\n",
		ValidArgs: names,
		Args:      atMostOneArg,
	}
	output := addOutput(cmd, "table", "json", "markdown")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		all := backend.Promises()
		if len(args) == 1 {
			all = slices.DeleteFunc(all, func(i driver.Info) bool { return i.Backend != args[0] })
			if len(all) == 0 {
				return usagef("there is no backend %q; there are %s", args[0], strings.Join(names, ", "))
			}
		}
		return a.explain(all, len(args) == 1, output.value)
	}
	return cmd
}

func (a *app) explain(all []driver.Info, one bool, output string) error {
	return a.print(output, result{
		document: func() any {
			promises := convert(all, func(i driver.Info) promisesJSON { return toPromises(i, backend.FaultsOf(i.Backend)) })
			return explainJSON{"snib.explain/1", promises, backend.Profiles(), tasks(), speeds()}
		},
		text: func() string {
			switch {
			case output == "markdown":
				return markdown(all)
			case one:
				return explainOne(all[0])
			}
			return explainAll(all)
		},
	})
}

// explainOne returns all about one backend.
func explainOne(i driver.Info) string {
	var b strings.Builder
	writeField(&b, "backend", i.Backend)
	p := profileOf(i.Backend)
	writeField(&b, "best for", p.BestFor)
	writeField(&b, "protocol", p.Protocol)
	writeField(&b, "operation", p.Operation)
	writeField(&b, "tenure", describeTenure(i))
	writeField(&b, "fencing", describeFencing(i.Fencing))
	writeField(&b, "fairness", "waiters are served in the order of arrival: "+i.Fairness.String())
	writeField(&b, "modes", describeModes(i))
	writeField(&b, "TTL", ttls(i))
	for _, text := range i.Assumptions {
		writeField(&b, "rests on", text)
	}
	writeFaults(&b, backend.FaultsOf(i.Backend))
	for _, s := range speeds() {
		if s.Backend == i.Backend {
			writeField(&b, "measured", s.Figure+": "+s.What)
		}
	}
	return b.String()
}

// profileOf returns the profile of a backend.
func profileOf(name string) backend.Profile {
	all := backend.Profiles()
	return all[slices.IndexFunc(all, func(p backend.Profile) bool { return p.Backend == name })]
}

// explainAll returns the guide to all backends.
func explainAll(all []driver.Info) string {
	var b strings.Builder
	b.WriteString(guide)
	b.WriteString("\nWhich lock\n")
	for _, t := range tasks() {
		b.WriteString("\n")
		writeTerm(&b, "  task", t.Task, 9)
		writeTerm(&b, "  lock", t.Lock, 9)
		writeTerm(&b, "  why", t.Why, 9)
	}
	b.WriteString("\nWhat each store is best for\n\n")
	for _, i := range all {
		writeTerm(&b, i.Backend, profileOf(i.Backend).BestFor, 11)
	}
	b.WriteString("\nWhat stores promise (details: snib explain BACKEND; real state: snib doctor)\n\n")
	b.WriteString(columns(promiseRows(all)))
	b.WriteString("\nMeasured speed (conditions: docs/performance.md; of your store: snib bench)\n\n")
	for _, s := range speeds() {
		fmt.Fprintf(&b, "%-10s %-9s %s\n", s.Backend, s.Figure, s.What)
	}
	return b.String()
}

// promiseRows returns the table of promises. The first row is its header.
func promiseRows(all []driver.Info) [][]string {
	rows := [][]string{{"backend", "tenure", "fencing", "fair", "modes", "TTL"}}
	for _, i := range all {
		rows = append(rows, []string{i.Backend, i.Tenure.String(), i.Fencing.String(), i.Fairness.String(), describeModes(i), ttls(i)})
	}
	return rows
}

// describeTenure says what ends the hold of a dead holder.
func describeTenure(i driver.Info) string {
	if i.Tenure == driver.TenureLease {
		return "lease: the lock of a dead holder is free at the end of its TTL at the latest"
	}
	if i.SessionTTL > 0 {
		return fmt.Sprintf("session: the locks of a dead holder are free when its session ends, after %v at the earliest", i.SessionTTL)
	}
	return "session: the locks of a dead holder are free when its session ends"
}

func describeModes(i driver.Info) string {
	text := "exclusive"
	if i.Shared {
		text += ", shared"
	}
	if i.Slots {
		text += ", slots"
	}
	return text
}

// ttls describes the range of TTLs.
func ttls(i driver.Info) string {
	switch {
	case i.Tenure == driver.TenureSession && i.SessionTTL > 0:
		return "session: " + briefDuration(i.SessionTTL)
	case i.MinTTL == 0 && i.MaxTTL == 0:
		return "any"
	case i.MaxTTL == 0:
		return "from " + briefDuration(i.MinTTL)
	}
	return briefDuration(i.MinTTL) + " to " + briefDuration(i.MaxTTL)
}

// briefDuration formats a duration in whole years, or as short does.
func briefDuration(d time.Duration) string {
	const year = 365 * 24 * time.Hour
	if d >= year && d%year == 0 {
		return plural(int(d/year), "year")
	}
	return short(d)
}

// markdown returns the part of docs/choosing.md that is generated from the code.
func markdown(all []driver.Info) string {
	var b strings.Builder
	table := func(rows [][]string) {
		for i, row := range rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
			}
		}
	}
	b.WriteString("### Which lock\n\n")
	rows := [][]string{{"task", "lock", "why"}}
	for _, t := range tasks() {
		rows = append(rows, []string{t.Task, t.Lock, t.Why})
	}
	table(rows)
	b.WriteString("\n### What the stores are\n\n")
	rows = [][]string{{"backend", "consistency protocol", "work to run it", "best for"}}
	for _, i := range all {
		p := profileOf(i.Backend)
		rows = append(rows, []string{i.Backend, p.Protocol, p.Operation, p.BestFor})
	}
	table(rows)
	b.WriteString("\n### What stores promise\n\n")
	table(promiseRows(all))
	b.WriteString("\n### What becomes of a lock when something goes wrong\n\n")
	rows = [][]string{{"backend", "pause", "crash", "failover", "partition", "clock jump"}}
	for _, i := range all {
		f := backend.FaultsOf(i.Backend)
		rows = append(rows, []string{i.Backend, f.Pause, f.Crash, f.Failover, f.Partition, f.ClockJump})
	}
	table(rows)
	b.WriteString("\n### What the promises rest on\n")
	for _, i := range all {
		fmt.Fprintf(&b, "\n**%s**\n\n", i.Backend)
		for _, text := range i.Assumptions {
			fmt.Fprintf(&b, "- %s\n", text)
		}
	}
	b.WriteString("\n### Measured speed\n\n")
	rows = [][]string{{"backend", "figure", "what"}}
	for _, s := range speeds() {
		rows = append(rows, []string{s.Backend, s.Figure, s.What})
	}
	table(rows)
	return b.String()
}
