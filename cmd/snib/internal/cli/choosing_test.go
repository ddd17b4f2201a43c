package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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

// TestChoosing compares the pages with what the drivers say.
func TestChoosing(t *testing.T) {
	const begin = "<!-- begin: UPDATE=1 go test ./cmd/snib/internal/cli -run TestChoosing -->\n\n"
	checkPage(t, "choosing.md", begin, promiseTable(promises()))
	checkPage(t, storesPage, begin, assumptions(promises()))
	checkRows(t, "choosing.md", 2)
	checkRows(t, storesPage, 1)
}

// storesPage lists what the stores are, and the assumptions of their promises.
var storesPage = filepath.Join("reference", "generated", "stores.md")

// checkRows checks that a page has so many tables of backends, each with a row of each backend and
// without an empty cell: a gap there would look like a promise.
func checkRows(t *testing.T, page string, tables int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range promises() {
		rows := regexp.MustCompile(`(?m)^\| `+i.Backend+` \|.*$`).FindAllString(string(text), -1)
		if len(rows) != tables || strings.Contains(strings.Join(rows, ""), "|  |") {
			t.Errorf("%s has the rows %q of %s, want %d without an empty cell", page, rows, i.Backend, tables)
		}
	}
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
	if old != want {
		t.Errorf("%s is not what the code says; UPDATE=1 go test writes it:\n%s", file, want)
	}
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

// promiseTable returns the table of promises in Markdown.
func promiseTable(all []driver.Info) string {
	var b strings.Builder
	b.WriteString("| backend | tenure | fencing | fair | modes | TTL |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, i := range all {
		fair := map[bool]string{false: "never", true: "always"}[i.Fair]
		fmt.Fprintf(&b, "| %s | %v | %v | %s | %s | %s |\n", i.Backend, i.Tenure, i.Fencing, fair, describeModes(i), ttls(i))
	}
	return b.String()
}

// assumptions returns what the promises of each backend rest on.
func assumptions(all []driver.Info) string {
	var parts []string
	for _, i := range all {
		parts = append(parts, fmt.Sprintf("**%s**\n\n- %s\n", i.Backend, strings.Join(i.Assumptions, "\n- ")))
	}
	return strings.Join(parts, "\n")
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

// promises returns what each backend promises with the default options of its driver, on servers
// whose settings break no promise. It contacts no server: a driver knows its Info without one.
func promises() []driver.Info {
	return []driver.Info{
		memlock.New().Info(), new(sqlitelock.Driver).Info(), new(redislock.Driver).Info(), new(redlock.Driver).Info(),
		infoOf(pglock.New(unconnectedPool())), infoOf(mysqllock.New(mysql.NewConfig())),
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
