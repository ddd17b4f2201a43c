package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// validRepo returns a small repository that keeps every rule, including files
// that come close to a violation.
func validRepo() map[string]string {
	page := "# x\n"
	for _, h := range headings {
		page += "\n## " + h + "\n\ntext\n"
	}
	backend := `
import "github.com/sniblock/snib/driver"
var _ driver.Driver = (*Driver)(nil)
type Driver struct{}`
	return map[string]string{
		"go.mod":            "module github.com/sniblock/snib\n\ngo 1.26\n",
		"go.work":           "go 1.26.0\n\nuse (\n\t.\n\t./cmd/snib\n\t./sqlitelock\n)\n",
		"sqlitelock/go.mod": "module github.com/sniblock/snib/sqlitelock\n\nrequire github.com/sniblock/snib v0.0.0\n",
		"cmd/snib/go.mod":   "module github.com/sniblock/snib/cmd/snib\n",

		"snib.go":          "package snib\nimport _ \"github.com/sniblock/snib/driver\"",
		"snib_test.go":     "package snib_test\nimport _ \"github.com/sniblock/snib/memlock\"\nfunc init() {}",
		"driver/driver.go": validState,
		"hold.go":          "package snib\ntype hold struct{}",
		"driver/comment.go": "package driver\n\n// " + strings.Repeat("x", 97) + "\n//\n//\t" + strings.Repeat("x", 200) +
			"\n//nolint:" + strings.Repeat("x", 200) + "\nvar _ = 1 // " + strings.Repeat("x", 200),
		"driver/state_test.go":                      "package driver\nvar Update bool\nfunc f() { Update = true }",
		"driver/fault/fault.go":                     "package fault\nimport _ \"github.com/sniblock/snib/driver\"",
		"driver/drivertest/suite.go":                "package drivertest\nimport (_ \"testing\"; _ \"testing/synctest\"; _ \"github.com/sniblock/snib/driver/fault\")",
		"memlock/memlock.go":                        "package memlock" + backend,
		"memlock/memlock_test.go":                   "package memlock\nfunc TestConformance(t *testing.T) {}",
		"sqlitelock/sqlitelock.go":                  "package sqlitelock" + backend,
		"sqlitelock/sqlite.go":                      "package sqlitelock\nimport (_ \"github.com/ncruces/go-sqlite3\"; _ \"github.com/sniblock/snib/sqlitelock/internal/ofd\")",
		"sqlitelock/sqlite_test.go":                 "package sqlitelock_test\nimport (_ \"github.com/sniblock/snib\"; _ \"github.com/sniblock/snib/sqlitelock\")\nfunc TestConformance(t *testing.T) {}",
		"sqlitelock/internal/ofd/o.go":              "package ofd",
		"redislock/redislock.go":                    "package redislock\nimport _ \"github.com/redis/rueidis\"" + backend,
		"redislock/redislock_test.go":               "package redislock_test\nfunc TestConformance(t *testing.T) {}",
		"docs/backends/redislock.md":                page,
		"redlock/redlock.go":                        "package redlock\nimport _ \"github.com/redis/rueidis\"" + backend,
		"redlock/redlock_test.go":                   "package redlock\nfunc TestConformance(t *testing.T) {}",
		"docs/backends/redlock.md":                  page,
		"redislock/goredis/goredis.go":              "package goredis\nimport (_ \"github.com/redis/go-redis/v9\"; _ \"github.com/sniblock/snib/redislock\")",
		"internal/history/x.go":                     "package history",
		"pglock/pglock.go":                          "package pglock\nimport _ \"github.com/jackc/pgx/v5/pgxpool\"" + backend,
		"pglock/pglock_test.go":                     "package pglock_test\nimport _ \"github.com/sniblock/snib/internal/livetest/pgtest\"\nfunc TestConformance(t *testing.T) {}",
		"docs/backends/pglock.md":                   page,
		"serve/access/x.go":                         "package access",
		"serve/internal/events/events.go":           "package events",
		"serve/internal/console/console.go":         "package console",
		"serve/internal/waiting/waiting.go":         "package waiting",
		"serve/serve.go":                            "package serve\nimport _ \"github.com/sniblock/snib/remotelock/wire\"",
		"remotelock/remotelock.go":                  "package remotelock\nimport _ \"github.com/sniblock/snib/remotelock/wire\"" + backend,
		"remotelock/wire/wire.go":                   "package wire",
		"docs/backends/remotelock.md":               page,
		"mysqllock/mysqllock.go":                    "package mysqllock\nimport _ \"github.com/go-sql-driver/mysql\"" + backend,
		"mysqllock/mysqllock_test.go":               "package mysqllock_test\nimport _ \"github.com/sniblock/snib/internal/livetest/mysqltest\"\nfunc TestConformance(t *testing.T) {}",
		"docs/backends/mysqllock.md":                page,
		"zklock/zklock.go":                          "package zklock\nimport _ \"github.com/go-zookeeper/zk\"" + backend,
		"zklock/zklock_test.go":                     "package zklock_test\nimport _ \"github.com/sniblock/snib/internal/livetest/zktest\"\nfunc TestConformance(t *testing.T) {}",
		"docs/backends/zklock.md":                   page,
		"etcdlock/etcdlock.go":                      "package etcdlock\nimport _ \"go.etcd.io/etcd/client/v3\"" + backend,
		"etcdlock/etcdlock_test.go":                 "package etcdlock_test\nimport _ \"github.com/sniblock/snib/internal/livetest/etcdtest\"\nfunc TestConformance(t *testing.T) {}",
		"docs/backends/etcdlock.md":                 page,
		"cmd/snib/main.go":                          "package main\nimport _ \"github.com/sniblock/snib/cmd/snib/internal/cli\"\nvar version = \"dev\"",
		"cmd/snib/internal/cli/cli.go":              "package cli\nimport (_ \"github.com/spf13/cobra\"; _ \"github.com/sniblock/snib/sqlitelock\")",
		"cmd/sniblab/main.go":                       "package main\nimport (_ \"testing\"; _ \"github.com/sniblock/snib/cmd/sniblab/internal/judge\")",
		"cmd/sniblab/internal/judge/judge.go":       "package judge",
		"cmd/sniblab/internal/process/process.go":   "package process",
		"cmd/sniblab/internal/target/target.go":     "package target",
		"cmd/sniblab/internal/timeline/timeline.go": "package timeline",
		"cmd/sniblab/internal/peers/peers.go":       "package peers",
		"cmd/sniblab/internal/served/x_test.go":     "package served\nimport _ \"github.com/sniblock/snib/serve\"\nfunc TestConformance(t *testing.T) {}",
		"cmd/sniblab/internal/interop/x_test.go":    "package interop_test\nimport (_ \"github.com/go-redsync/redsync/v4/redis\"; _ \"github.com/sniblock/snib\")",
		"fence/doc.go":                              "package fence",
		"leader/leader.go":                          "package leader\nimport _ \"github.com/sniblock/snib\"",
		"cron/cron.go":                              "package cron\nimport _ \"github.com/sniblock/snib\"",
		"cron/gocrondist/dist.go":                   "package gocrondist\nimport (_ \"github.com/go-co-op/gocron/v2\"; _ \"github.com/sniblock/snib/cron\")",
		"examples/paused/main.go":                   "package main\nimport _ \"github.com/sniblock/snib/redislock/redisfence\"",
		"internal/arch/doc.go":                      "package arch",
		"redislock/redisadmin/a.go":                 "package redisadmin",
		"redislock/rediskit/k.go":                   "package rediskit",
		"redislock/redisfence/f.go":                 "package redisfence",
		"internal/readme/doc.go":                    "package readme",
		"internal/jobtest/job.go":                   "package jobtest",
		"driver/driverkit/rows/rows.go":             "package rows",
		"driver/driverkit/lifecycle.go":             "package driverkit",
		"metriclabel/label.go":                      "package metriclabel\nimport _ \"github.com/sniblock/snib\"",
		"metrics/metrics.go":                        "package metrics\nimport (_ \"github.com/prometheus/client_golang/prometheus\"; _ \"github.com/sniblock/snib/metriclabel\")",
		"metrics/otelmetrics/otel.go":               "package otelmetrics\nimport _ \"go.opentelemetry.io/otel/metric\"",
		"metrics/example/main.go":                   "package main\nimport _ \"github.com/sniblock/snib/metrics\"",
		"internal/livetest/livetest.go":             "package livetest",
		"internal/mutant/doc.go":                    "package mutant",
		"docs/backends/memlock.md":                  page,
		"docs/backends/sqlitelock.md":               page,
		"testdata/util/util.go":                     "not Go, and nobody looks",
		"cmd/snib/testdata/bad/main.go":             "package util",
	}
}

// validState has variables that look as if they changed, but do not.
const validState = `package driver
import ("sync"; "time")
var epoch = time.Now()
var table = []int{1, 2}
var once = sync.OnceValue(func() int { var mu sync.Mutex; mu.Lock(); return 1 })
type value struct{ n int }
func (v value) get() int { return v.n }
var zero value
var handlers = map[string]func(){"x": func() { epoch := 1; epoch++ }}
func local(epoch int) int {
	epoch = 2
	table := []int{3}
	table[0]++
	p := &table
	for i, epoch := range table { _, _ = i, epoch }
	return (*p)[0] + zero.get() + once()
}
`

func repoOf(t *testing.T, files map[string]string) *repo {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		if text != "" { // a mutant may remove a file
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	r, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A mutant breaks one rule: its files replace those of validRepo.
type mutant struct {
	check string // the only check that must fail
	name  string
	files map[string]string
	want  string // part of its message
}

const snib = "github.com/sniblock/snib"

// stateMutant returns a mutant of the check Variables: a declaration, and code that uses it.
func stateMutant(name, want, decl string) mutant {
	return mutant{"Variables", name, map[string]string{"driver/state.go": "package driver\n" + decl}, want}
}

// importMutant returns a mutant of an import rule: the file imports p.
func importMutant(check, file, pkg, p string) mutant {
	return mutant{check, file + " imports " + p, map[string]string{file: fmt.Sprintf("package %s\nimport _ %q", pkg, p)}, file}
}

var mutants = []mutant{
	{"Rule", "PackageWithout", map[string]string{"extra/extra.go": "package extra"}, "extra: the package has no rule"},
	{"Rule", "NoPackage", map[string]string{"driver/fault/fault.go": "", "driver/drivertest/suite.go": "package drivertest"}, "driver/fault: the rule has no package"},

	importMutant("Imports", "driver/x.go", "driver", "golang.org/x/sys/unix"),
	importMutant("Imports", "driver/x.go", "driver", snib),
	importMutant("Imports", "driver/x.go", "driver", "C"),
	importMutant("Imports", "x.go", "snib", snib+"/memlock"),
	importMutant("Imports", "x.go", "snib", "github.com/stretchr/testify/assert"),
	importMutant("Imports", "x_test.go", "snib_test", snib+"/sqlitelock"),
	importMutant("Imports", "memlock/x.go", "memlock", snib),
	importMutant("Imports", "cron/x.go", "cron", "github.com/go-co-op/gocron/v2"),
	importMutant("Imports", "leader/x.go", "leader", snib+"/memlock"),
	importMutant("Imports", "memlock/x.go", "memlock", snib+"/driver/fault"),
	importMutant("Imports", "driver/drivertest/x.go", "drivertest", snib+"/memlock"),
	importMutant("Imports", "driver/fault/x.go", "fault", snib+"/driver/drivertest"),
	importMutant("Imports", "sqlitelock/x.go", "sqlitelock", snib),
	importMutant("Imports", "sqlitelock/x.go", "sqlitelock", snib+"/memlock"),
	importMutant("Imports", "sqlitelock/x.go", "sqlitelock", "github.com/redis/rueidis"),
	importMutant("Imports", "sqlitelock/x_test.go", "sqlitelock", snib+"/memlock"),
	importMutant("Imports", "sqlitelock/internal/ofd/x.go", "ofd", snib),
	importMutant("Imports", "redislock/x.go", "redislock", "github.com/redis/go-redis/v9"),
	importMutant("Imports", "redislock/goredis/x.go", "goredis", snib),
	importMutant("Imports", "cmd/sniblab/internal/judge/x.go", "judge", snib+"/redislock"),
	importMutant("Imports", "cmd/snib/x.go", "main", "github.com/alecthomas/kong"),

	{"Closed", "LibraryImportsCommand", map[string]string{"sqlitelock/cmd_test.go": "package sqlitelock\nimport _ \"" + snib + "/cmd/snib/internal/cli\""}, "sqlitelock imports cmd/snib"},
	{"Closed", "LibraryImportsLab", map[string]string{"x.go": "package snib\nimport _ \"" + snib + "/cmd/sniblab\""}, "imports cmd/sniblab"},

	importMutant("Testing", "x.go", "snib", "testing"),
	importMutant("Testing", "memlock/x.go", "memlock", "testing/synctest"),
	importMutant("Template", "cmd/snib/x.go", "main", "text/template"),
	importMutant("Template", "driver/drivertest/x.go", "drivertest", "html/template"),

	{"Names", "PackageClause", map[string]string{"driver/fault/fault.go": "package util"}, "package util"},
	{"Names", "Directory", map[string]string{"cmd/snib/internal/common/c.go": "package fine"}, "cmd/snib/internal/common"},
	{"Names", "ExternalTest", map[string]string{"cmd/snib/internal/x/c_test.go": "package helpers_test"}, "package helpers"},

	{"Types", "Nowhere", map[string]string{"driver/x.go": "package driver\ntype patience int"}, "driver/x.go:2"},
	{"Types", "Elsewhere", map[string]string{"memlock/x.go": "package memlock\ntype hold struct{}"}, "memlock/x.go:2"},
	{"Types", "Local", map[string]string{"x.go": "package snib\nfunc f() { type line struct{} }"}, "x.go:2"},

	{"Init", "Library", map[string]string{"x.go": "package snib\nfunc init() {}"}, "x.go:2"},
	{"Init", "Command", map[string]string{"cmd/snib/x.go": "package main\nfunc init() {}"}, "cmd/snib has an init"},

	{"Size", "Product", map[string]string{"docs/budget.md": "| all | `.` | 0 | 1,000 |\n", "x.go": "package snib\n"}, "the product of all has"},
	{"Size", "Tests", map[string]string{"docs/budget.md": "| all | `.` | 1,000 | 0 |\n", "x_test.go": "package snib\n"}, "the tests of all has"},
	{"Size", "Words", map[string]string{"docs/budget.md": "| words | 1 |\n"}, "words, and may have 1"},
	{"Size", "Folder", map[string]string{"docs/budget.md": "| all | `.` | 1,000 | 1,000 |\n"}, "memlock belongs to no part"},

	{"Options", "Unlisted", map[string]string{"x.go": "package snib\nfunc Depth(n int) Option { return nil }"}, "who needs snib.Depth"},

	{"ExportedVariables", "Sentinel", map[string]string{"x.go": "package snib\nvar ErrX = error(nil)"}, "ErrX"},
	{"ExportedVariables", "SecondName", map[string]string{"x.go": "package snib\nvar (\n\t_ = 1\n\ta, B int\n)"}, "variable B"},

	stateMutant("Assigned", "is assigned to", "var n int\nfunc f() { n = 1 }"),
	stateMutant("AssignedInTuple", "is assigned to", "var n int\nfunc f() { _, n = 1, 2 }"),
	stateMutant("Added", "is assigned to", "var n int\nfunc f() { n += 1 }"),
	stateMutant("Incremented", "is assigned to", "var n int\nfunc f() { n++ }"),
	stateMutant("AssignedByRange", "is assigned to", "var n int\nfunc f() { for n = range 3 {} }"),
	stateMutant("Field", "is assigned to", "var v struct{ a struct{ n int } }\nfunc f() { v.a.n = 1 }"),
	stateMutant("Element", "is assigned to", "var m = map[string]int{}\nfunc f() { m[\"x\"]++ }"),
	stateMutant("Pointee", "is assigned to", "var p = new(int)\nfunc f() { *p = 1 }"),
	stateMutant("Address", "has its address taken", "var n int\nfunc f() *int { return &n }"),
	stateMutant("AddressInAnotherVariable", "has its address taken", "var n int\nvar p = &n"),
	stateMutant("PointerMethod", "has its address taken by Set", "type t struct{ n int }\nfunc (v *t) Set() { v.n = 1 }\nvar v t\nfunc f() { v.Set() }"),
	stateMutant("Deleted", "is changed by delete", "var m = map[string]int{}\nfunc f() { delete(m, \"x\") }"),
	stateMutant("Mutex", "exists to change", "import \"sync\"\nvar mu sync.Mutex"),
	stateMutant("Atomic", "exists to change", "import \"sync/atomic\"\nvar n atomic.Int64"),
	stateMutant("Guarded", "exists to change", "import \"sync\"\nvar v = &struct{ mu sync.Mutex }{}"),
	stateMutant("Pool", "exists to change", "import \"sync\"\nvar pool = sync.Pool{}"),
	stateMutant("Channel", "exists to change", "var c = make(chan int)"),
	{"Variables", "InAnotherFile", map[string]string{"driver/a.go": "package driver\nvar n int", "driver/b.go": "package driver\nfunc f() { n = 1 }"}, "driver/b.go:2"},
	{"Variables", "UnderABuildTag", map[string]string{"driver/a.go": "package driver\nvar n int", "driver/b_plan9.go": "//go:build plan9\n\npackage driver\nfunc f() { n = 1 }"}, "driver/b_plan9.go:4"},
	{"Variables", "ByATest", map[string]string{"driver/a.go": "package driver\nvar n int", "driver/b_test.go": "package driver\nfunc f() { n = 1 }"}, "driver/b_test.go:2"},

	{"Modules", "NotInWorkspace", map[string]string{"memlock/go.mod": "module " + snib + "/memlock\n"}, "go.work does not use memlock"},
	{"Modules", "OtherName", map[string]string{"cmd/snib/go.mod": "module example.com/snib\n"}, "example.com/snib"},
	{"Modules", "NoModule", map[string]string{"go.work": "use .\nuse ./cmd/snib\nuse ./sqlitelock\nuse ./gone\n"}, "uses gone"},
	{"Versions", "Line", map[string]string{
		"cmd/snib/go.mod":   "module " + snib + "/cmd/snib\n\nrequire golang.org/x/sys v0.1.0\n",
		"sqlitelock/go.mod": "module " + snib + "/sqlitelock\n\nrequire golang.org/x/sys v0.2.0 // indirect\n",
	}, "requires golang.org/x/sys v0.2.0, and another module v0.1.0"},
	{"Versions", "Block", map[string]string{
		"cmd/snib/go.mod":   "module " + snib + "/cmd/snib\n\nrequire (\n\tgolang.org/x/sync v0.1.0\n\tgolang.org/x/sys v0.1.0\n)\n",
		"sqlitelock/go.mod": "module " + snib + "/sqlitelock\n\nrequire (\n\tgolang.org/x/sys v0.2.0\n)\n",
	}, "requires golang.org/x/sys v0.2.0, and another module v0.1.0"},
	{"RootRequire", "Line", map[string]string{"go.mod": "module " + snib + "\n\nrequire golang.org/x/sys v0.1.0\n"}, "golang.org/x/sys"},
	{"RootRequire", "Block", map[string]string{"go.mod": "module " + snib + "\n\nrequire (\n\tgolang.org/x/sys v0.1.0\n)\n"}, "require ("},

	{"Conformance", "Missing", map[string]string{"memlock/memlock_test.go": "package memlock\nfunc TestConform(t *testing.T) {}"}, "memlock: the backend"},
	{"Conformance", "NotATest", map[string]string{"memlock/memlock_test.go": "", "memlock/x.go": "package memlock\nfunc TestConformance() {}"}, "memlock: the backend"},
	{"Conformance", "Elsewhere", map[string]string{"cmd/sniblab/internal/served/x_test.go": "package served"}, "remotelock: the backend"},
	{"Assertion", "Missing", map[string]string{"memlock/memlock.go": "package memlock"}, "memlock: the backend"},
	{"Assertion", "InATest", map[string]string{"memlock/memlock.go": "package memlock", "memlock/x_test.go": "package memlock\nvar _ driver.Driver = (*Driver)(nil)"}, "memlock: the backend"},
	{"Assertion", "OtherInterface", map[string]string{"memlock/memlock.go": "package memlock\nvar _ driver.Lease = (*Driver)(nil)"}, "memlock: the backend"},
	{"Comments", "Doc", map[string]string{"x.go": "package snib\n\n// " + strings.Repeat("x", 98) + "\nfunc f() {}"}, "x.go:3"},
	{"Comments", "Indented", map[string]string{"x.go": "package snib\n\nfunc f() {\n\t// " + strings.Repeat("x", 97) + "\n}"}, "x.go:4"},
	{"Page", "Missing", map[string]string{"docs/backends/memlock.md": ""}, "has no page"},
	{"Page", "Heading", map[string]string{"docs/backends/memlock.md": "## Keys\n## Waiting\n## Liveness\n## Fencing\n## Options\n"}, "## Failover"},
	{"Page", "Order", map[string]string{"docs/backends/memlock.md": "## Waiting\n## Keys\n## Liveness\n## Fencing\n## Failover\n## Options\n"}, "## Waiting"},
}

// violations runs all checks on files, and returns the messages of each check that fails.
func violations(t *testing.T, files map[string]string) map[string][]string {
	t.Helper()
	r, found := repoOf(t, files), map[string][]string{}
	for _, c := range checks {
		c.run(r, func(where, format string, args ...any) {
			found[c.name] = append(found[c.name], where+": "+fmt.Sprintf(format, args...))
		})
	}
	return found
}

func TestSound(t *testing.T) {
	for name, messages := range violations(t, validRepo()) {
		t.Errorf("%s objects to a sound repository: %q", name, messages)
	}
}

func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.check+"/"+m.name, func(t *testing.T) {
			files := validRepo()
			maps.Copy(files, m.files)
			found := violations(t, files)
			if message := strings.Join(found[m.check], "\n"); message == "" || !strings.Contains(message, m.want) {
				t.Errorf("%s says %q, want %q in it", m.check, message, m.want)
			}
			delete(found, m.check)
			if m.check == "Closed" {
				delete(found, "Imports") // fails for the same import, for its own reason
			}
			if len(found) > 0 {
				t.Errorf("others object too: %q", found)
			}
		})
	}
	for _, c := range checks {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.check == c.name }) {
			t.Errorf("no mutant breaks the check %s: can it fail at all?", c.name)
		}
	}
}

func TestExceptions(t *testing.T) {
	r := repoOf(t, map[string]string{"driver/state.go": "package driver\nvar n int\nfunc f() { n++ }"})
	r.exceptions = map[string]string{"driver.n": "a reason", "driver.gone": "a reason", "driver.blank": ""}
	var messages []string
	checkState(r, func(where, format string, args ...any) { messages = append(messages, fmt.Sprintf(format, args...)) })
	slices.Sort(messages)
	want := []string{"the exception for driver.blank has no reason", "the exception for driver.gone is not needed"}
	if !slices.Equal(messages, want) {
		t.Errorf("violations = %q, want %q", messages, want)
	}
}
