package cli

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

// docs is the folder of the pages that are made of the code.
var docs = filepath.Join("..", "..", "..", "..", "docs")

// TestChoosing compares the pages with what the drivers and the profiles say.
func TestChoosing(t *testing.T) {
	const begin = "<!-- begin: UPDATE=1 go test ./cmd/snib/internal/cli -run TestChoosing -->\n\n"
	checkPage(t, "choosing.md", begin, choosingTables(promises()))
	checkPage(t, filepath.Join("reference", "generated", "stores.md"), begin, storeTables(promises()))
}

// checkPage compares the part of a page after begin with want, which is made of the code.
// UPDATE=1 rewrites it.
func checkPage(t *testing.T, page, begin, want string) {
	t.Helper()
	const end = "\n<!-- end -->\n"
	file := filepath.Join(docs, page)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no %q or %q", file, begin, end)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old == want {
		return
	}
	is, should := strings.Split(old, "\n"), strings.Split(want, "\n")
	for i, line := range should {
		if i >= len(is) || is[i] != line {
			t.Fatalf("%s is not what the code says; UPDATE=1 go test writes it. The first line that differs is to be\n%s", file, line)
		}
	}
	t.Fatalf("%s has lines at its end that the code doesn't say", file)
}

// TestPromises checks that a driver promises the same with and without a store.
func TestPromises(t *testing.T) {
	seen := make(map[string]bool)
	for _, i := range promises() {
		if i.Backend == "" || seen[i.Backend] || len(i.Assumptions) == 0 {
			t.Errorf("promises of %q: %+v", i.Backend, i)
		}
		seen[i.Backend] = true
	}
	s, err := backend.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "locks.db"), backend.Take)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, i := range promises() {
		if i.Backend == "sqlite" && !reflect.DeepEqual(i, s.Info()) {
			t.Errorf("without a file SQLite promises\n%+v\nwith one\n%+v", i, s.Info())
		}
	}
}

// TestFaults checks that each backend says what becomes of a lock under each fault: a gap there
// would look like a promise.
func TestFaults(t *testing.T) {
	for _, i := range promises() {
		checkClauses(t, i.Backend, faultsOf[i.Backend])
	}
}

// TestProfiles checks that each backend has a profile without gaps.
func TestProfiles(t *testing.T) {
	all, profiles := promises(), profiles()
	if len(profiles) != len(all) {
		t.Fatalf("%d profiles of %d backends", len(profiles), len(all))
	}
	for i, p := range profiles {
		if p.Backend != all[i].Backend {
			t.Errorf("profile %d is of %q, want %q", i, p.Backend, all[i].Backend)
		}
		checkClauses(t, p.Backend, p)
	}
}

// checkClauses checks that the fields of a struct, which are strings, fit in the cells of a table.
func checkClauses(t *testing.T, backend string, of any) {
	t.Helper()
	const maxLength = 200
	f := reflect.ValueOf(of)
	for j := range f.NumField() {
		name, text := f.Type().Field(j).Name, f.Field(j).String()
		if text == "" || len(text) > maxLength || strings.Contains(text, "\n") || strings.HasSuffix(text, ".") {
			t.Errorf("%s: %s = %q; want a clause on one line, of at most %d bytes, without a full stop", backend, name, text, maxLength)
		}
	}
}

func TestTTLs(t *testing.T) {
	for _, tt := range []struct {
		info driver.Info
		want string
	}{
		{driver.Info{}, "any"}, {driver.Info{MinTTL: 5e7}, "from 50ms"}, {driver.Info{MinTTL: 1e7, MaxTTL: endlessLeft}, "10ms to 10 years"},
	} {
		if got := ttls(tt.info); got != tt.want {
			t.Errorf("ttls(%v, %v) = %q, want %q", tt.info.MinTTL, tt.info.MaxTTL, got, tt.want)
		}
	}
}

// promiseRows returns the table of promises. The first row is its header.
func promiseRows(all []driver.Info) [][]string {
	rows := [][]string{{"backend", "tenure", "fencing", "fair", "modes", "TTL"}}
	for _, i := range all {
		rows = append(rows, []string{i.Backend, i.Tenure.String(), i.Fencing.String(), i.Fairness.String(),
			describeModes(i), ttls(i)})
	}
	return rows
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
		return "session: " + i.SessionTTL.String() // whole: a shorter TTL is refused
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

// choosingTables returns the part of docs/choosing.md that is generated.
func choosingTables(all []driver.Info) string {
	var b strings.Builder
	b.WriteString("## Which lock\n\n")
	rows := [][]string{{"task", "lock", "why"}}
	for _, t := range tasks() {
		rows = append(rows, []string{t.Task, t.Lock, t.Why})
	}
	writeTable(&b, rows)
	b.WriteString("\n## What stores promise\n\n")
	writeTable(&b, promiseRows(all))
	b.WriteString("\n## What becomes of a lock when something goes wrong\n\n")
	rows = [][]string{{"backend", "pause", "crash", "failover", "partition", "clock jump"}}
	for _, i := range all {
		f := faultsOf[i.Backend]
		rows = append(rows, []string{i.Backend, f.Pause, f.Crash, f.Failover, f.Partition, f.ClockJump})
	}
	writeTable(&b, rows)
	return b.String()
}

// storeTables returns the part of docs/reference/generated/stores.md that is generated.
func storeTables(all []driver.Info) string {
	var b strings.Builder
	b.WriteString("## What the stores are\n\n")
	rows := [][]string{{"backend", "consistency protocol", "work to run it", "best for"}}
	for _, p := range profiles() {
		rows = append(rows, []string{p.Backend, p.Protocol, p.Operation, p.BestFor})
	}
	writeTable(&b, rows)
	b.WriteString("\n## What the promises rest on\n")
	for _, i := range all {
		fmt.Fprintf(&b, "\n**%s**\n\n", i.Backend)
		for _, text := range i.Assumptions {
			fmt.Fprintf(&b, "- %s\n", text)
		}
	}
	return b.String()
}

// writeTable writes a table in Markdown. The first row is its header.
func writeTable(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
}

// A task is a purpose for a lock, and the lock that we recommend for it.
type task struct {
	Task string // the purpose
	Lock string // the lock that we recommend
	Why  string // the reason
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

// A profile says, for people who choose a store, what a backend is apart from its promises: a
// clause on one line for each question, in lower case and without a full stop.
type profile struct {
	Backend   string // the kind of store
	Protocol  string // what keeps its servers consistent, if anything does
	Operation string // how much work it is to run
	BestFor   string // what it suits best
}

// profiles returns the profiles of all backends, in the order of promises.
func profiles() []profile {
	return []profile{
		{
			Backend:   "memory",
			Protocol:  "none: one process",
			Operation: "none",
			BestFor:   "tests, and programs that are one process",
		},
		{
			Backend:   "sqlite",
			Protocol:  "none: transactions in one file, under one kernel",
			Operation: "none: a file on a local disk",
			BestFor:   "scheduled jobs, scripts and services on one host",
		},
		{
			Backend:   "redis",
			Protocol:  "none: one server decides, by its clock; replication is asynchronous, and the grace period covers a failover",
			Operation: "low: one server, or Sentinel or a Cluster that you run anyway; no eviction, and min-replicas-to-write if there are replicas",
			BestFor:   "many short locks at a high rate, where two holders at a time are rare and can be repaired",
		},
		{
			Backend:   "redlock",
			Protocol:  "a majority of independent servers, each by its own clock; no leader and no log",
			Operation: "medium: an odd number of servers, each on a machine of its own; all clients need the same list of them",
			BestFor:   "short locks that outlast the loss of a server without a wait, where there is Redis and no consensus store",
		},
		{
			Backend:   "postgres",
			Protocol:  "the database's log: one primary orders commits, and standbys replay them, synchronously if so configured",
			Operation: "low if the database runs anyway; failover needs a synchronous standby, or someone who checks that none was lost",
			BestFor:   "locks beside the data that they protect: the same transaction, the same backup, the same failover",
		},
		{
			Backend:   "mysql",
			Protocol:  "the database's log: one primary orders commits, and replicas apply its binary log, semi-synchronously if so configured",
			Operation: "low if the database runs anyway; failover needs a replica that has all commits",
			BestFor:   "locks beside the data that they protect: the same transaction, the same backup, the same failover",
		},
		{
			Backend:   "zookeeper",
			Protocol:  "Zab: a leader orders all writes, and one counts when a majority of the servers has it on disk",
			Operation: "high: an odd number of servers, at least three, with fast disks; tickTime, syncLimit and session timeouts to tune",
			BestFor:   "few locks that are held for long, and elections, with strong consistency, where ZooKeeper runs anyway",
		},
		{
			Backend:   "etcd",
			Protocol:  "Raft: a leader orders all writes, and one counts when a majority of the members has it on disk",
			Operation: "high: an odd number of members, at least three, with fast disks; compaction, quota and snapshots to look after",
			BestFor:   "few locks that are held for long, and elections, with strong consistency across services",
		},
	}
}

// promises returns what each backend promises with the default options of its driver, on servers
// whose settings break no promise. It contacts no server: a driver knows its Info without one.
func promises() []driver.Info {
	return []driver.Info{
		memlock.New().Info(), new(sqlitelock.Driver).Info(), new(redislock.Driver).Info(), new(redlock.Driver).Info(),
		infoOf(pglock.New(unconnectedPool())), infoOf(mysqllock.New(new(sql.DB))),
		infoOf(zklock.New([]string{"localhost"})), infoOf(etcdlock.New(new(clientv3.Client))),
	}
}

// unconnectedPool returns a pool that has not connected to its server.
func unconnectedPool() *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), "postgres://127.0.0.1:1/none")
	if err != nil {
		panic(err) // the URL is well-formed
	}
	return pool
}

// infoOf returns the Info of a new driver. The error is nil, because the options are valid.
func infoOf(d driver.Driver, _ error) driver.Info { return d.Info() }
