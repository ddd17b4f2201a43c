package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A pageSection is a section of a page whose shell blocks are run.
type pageSection struct {
	page, heading string
	server        string   // what the programs belong to, for livetest.Binary
	programs      []string // that the blocks run
	// start starts what the blocks need, and returns their environment. dir is where they run.
	// check is called when they have run.
	start func(t *testing.T, dir string) (env []string, check func())
}

var pageSections = []pageSection{
	{"command.md", "Arguments of `snib run`", "", nil, startNothing},
	{"command.md", "Files: `snib fence FILE -- COMMAND`", "awk", []string{"awk"}, startCount},
	{"command.md", "The rest of a script: `snib hold`", "", nil, startNothing},
	{"coming-from-commands.md", "flock", "flock", []string{"flock"}, startNothing},
	{"coming-from-commands.md", "etcdctl lock", "etcd", nil, startEtcd},
	{"stores.md", "SQLite", "sqlite3", []string{"sqlite3"}, startSQLite},
	{"stores.md", "Redis", "redis", []string{"redis-cli"}, startRedis},
	{"stores.md", "PostgreSQL", "postgres", []string{"pg_dump", "psql"}, startPostgres},
	{"stores.md", "MariaDB", "mysql", []string{"mysqldump", "mysql"}, startMySQL},
}

func startNothing(*testing.T, string) (env []string, check func()) { return nil, func() {} }

// TestPageBlocks runs the shell blocks of pages as they stand, those of a section in one folder,
// one after the other. Each echo in a block must print its text.
func TestPageBlocks(t *testing.T) {
	t.Parallel()
	run := map[string]bool{}
	for _, s := range pageSections {
		run[s.page+"#"+s.heading] = true
		t.Run(s.page+"/"+s.heading, func(t *testing.T) {
			blocks := shellBlocks(t, s.page)[s.heading]
			if len(blocks) == 0 {
				t.Fatal("the section has no shell block")
			}
			for _, program := range s.programs {
				livetest.Binary(t, s.server, program)
			}
			dir := newStore(t)
			env, check := s.start(t, dir)
			for _, block := range blocks {
				out := shell(t, dir, env, block)
				for _, m := range regexp.MustCompile(`echo "([^"$]*)"`).FindAllStringSubmatch(block, -1) {
					if !strings.Contains(block, "|| echo \""+m[1]) && !strings.Contains(out, m[1]+"\n") {
						t.Errorf("the output lacks %q:\n%s\n%s", m[1], block, out)
					}
				}
			}
			check()
		})
	}
	for _, page := range []string{"command.md", "coming-from-commands.md", "stores.md"} {
		for heading := range shellBlocks(t, page) {
			if !run[page+"#"+heading] {
				t.Errorf("nothing runs the shell blocks of %s, %s", page, heading)
			}
		}
	}
}

// shellBlocks returns the shell blocks of a page in docs, by the heading of their section.
func shellBlocks(t *testing.T, page string) map[string][]string {
	t.Helper()
	blocks := map[string][]string{}
	for _, section := range strings.Split(read(filepath.Join("..", "..", "docs", page)), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		for _, m := range regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$").FindAllStringSubmatch(text, -1) {
			blocks[heading] = append(blocks[heading], m[1])
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no shell block", page)
	}
	return blocks
}

// shell runs a script that must succeed, and returns its output.
func shell(t *testing.T, dir string, env []string, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir, cmd.Env = dir, append(environ(t), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// startCount has the block run once more, and checks that it counts.
func startCount(t *testing.T, dir string) (env []string, check func()) {
	return nil, func() {
		for _, want := range []string{"1", "2"} {
			if got := strings.TrimSpace(read(filepath.Join(dir, "count.txt"))); got != want {
				t.Errorf("count.txt = %q, want %q", got, want)
			}
			shell(t, dir, nil, shellBlocks(t, "command.md")["Files: `snib fence FILE -- COMMAND`"][0])
		}
	}
}

func startEtcd(t *testing.T, _ string) (env []string, check func()) {
	s := etcdtest.Start(t)
	etcdctl := s.Command(t.Context()).Path
	return []string{
		"SNIB_URL=etcd://" + s.Addr(), "ETCDCTL_ENDPOINTS=http://" + s.Addr(),
		"PATH=" + filepath.Dir(etcdctl) + string(os.PathListSeparator) + os.Getenv("PATH"),
	}, func() {}
}

// holdDeploy starts a snib run that holds the lock deploy. The function end takes the lock away,
// and waits for the end of snib run: a holder that lived on could renew a lease that is restored.
func holdDeploy(t *testing.T, env []string) (end func()) {
	t.Helper()
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		setenv(t, name, value)
	}
	p := start(t, "snib", "run", "--ttl", "6s", "deploy", "--", "sh", "-c", `echo "token $SNIB_TOKEN."; exec sleep 600`)
	p.awaitOutput(".\n")
	return func() {
		t.Helper()
		mustSnib(t, "release", "deploy", "--force", "--yes")
		if code := p.wait(); code != 79 {
			t.Fatalf("the holder ended with %d, want 79: %s", code, p.out.String())
		}
	}
}

// nextToken acquires the lock deploy and returns its token.
func nextToken(t *testing.T) uint64 {
	t.Helper()
	return tokenIn(t, mustSnib(t, "run", "--wait", "60s", "deploy", "--", "sh", "-c", `echo "token $SNIB_TOKEN."`))
}

func tokenIn(t *testing.T, out string) uint64 {
	t.Helper()
	m := regexp.MustCompile(`token (\d+)\.`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no token in %q", out)
	}
	token, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// checkRestore restores a backup. Tokens must go on.
func checkRestore(t *testing.T, backup string, restore func()) {
	t.Helper()
	last := nextToken(t)
	restore()
	if got := nextToken(t); got <= last {
		t.Errorf("token after %s was restored = %d, want more than %d", backup, got, last)
	}
}

// startSQLite has the file copied while a lock is held. Then it puts the copy in the place of the
// file, as the page says. The lease in the copy has to end first.
func startSQLite(t *testing.T, dir string) (env []string, check func()) {
	end := holdDeploy(t, nil)
	return nil, func() {
		end()
		checkRestore(t, "copy.db", func() {
			shell(t, dir, nil, "rm snib/locks.db*; mv copy.db snib/locks.db; chmod 600 snib/locks.db")
			livetest.Await(t, "end of the lease in the copy", func() error {
				out, code := snib(t, "run", "--try", "deploy", "--", "true")
				if code == 69 && strings.Contains(out, "the database was copied; wait until they end") {
					return fmt.Errorf("%s", out)
				}
				if code != 0 {
					t.Fatalf("exit code = %d: %s", code, out)
				}
				return nil
			})
		})
	}
}

// startRedis has the server copied while a lock is held. Then it puts the server back to the copy.
// The server must grant nothing until its grace period is over.
func startRedis(t *testing.T, dir string) (env []string, check func()) {
	node := redistest.Single(t).Used()
	env = []string{"SNIB_URL=redis://" + node.Addr() + "/0"}
	end := holdDeploy(t, env)
	return env, func() {
		end()
		checkRestore(t, "copy.rdb", func() {
			node.Stop()
			if err := os.Rename(filepath.Join(dir, "copy.rdb"), filepath.Join(node.Dir(), "dump.rdb")); err != nil {
				t.Fatal(err)
			}
			node.Restart()
			if keys := node.Must("EXISTS", "snib.m"); keys != int64(1) {
				t.Fatalf("the server has not loaded the copy: EXISTS snib.m = %v", keys)
			}
			livetest.Await(t, "end of the lease in the copy", func() error {
				out, code := snib(t, "run", "--try", "deploy", "--", "true")
				if code == 75 {
					return fmt.Errorf("%s", out)
				}
				if code != 69 || !strings.Contains(out, "the store restarted or failed over") {
					t.Errorf("after the restore: exit code %d: %s", code, out)
				}
				return nil
			})
			node.Used() // ends the grace period
		})
	}
}

// startPostgres has the database dumped while a lock is held. Then it restores that backup, which
// lacks the table of snib, and one with the table, whose lease has to end.
func startPostgres(t *testing.T, dir string) (env []string, check func()) {
	env = []string{"SNIB_URL=" + pgtest.Start(t).URL()}
	end := holdDeploy(t, env)
	return env, func() {
		if dump := read(filepath.Join(dir, "app.sql")); !strings.Contains(dump, "PostgreSQL database dump") || strings.Contains(dump, "snib_locks") {
			t.Errorf("the backup has the table of snib:\n%s", dump)
		}
		shell(t, dir, env, `pg_dump "$SNIB_URL" >rows.sql; grep -q deploy rows.sql`)
		end()
		for _, backup := range []string{"app.sql", "rows.sql"} {
			checkRestore(t, backup, func() {
				shell(t, dir, env, `psql -qc 'DROP TABLE snib_locks' "$SNIB_URL"; psql -qv ON_ERROR_STOP=1 "$SNIB_URL" <`+backup)
			})
		}
	}
}

// startMySQL creates the database app, and the file with which clients log in. Then it does what
// startPostgres does.
func startMySQL(t *testing.T, dir string) (env []string, check func()) {
	s := mysqltest.Start(t)
	host, port, _ := strings.Cut(s.Addr(), ":")
	conf := fmt.Sprintf("[client]\nhost=%s\nport=%s\nuser=%s\npassword=%s\n", host, port, mysqltest.User, mysqltest.Password())
	if err := os.WriteFile(filepath.Join(dir, ".my.cnf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	env = []string{"HOME=" + dir, "SNIB_URL=" + strings.TrimSuffix(mysqlURL(s.Addr()), mysqltest.Database) + "app"}
	shell(t, dir, env, "mysql -e 'CREATE DATABASE app; CREATE TABLE app.orders (id INT)'")
	end := holdDeploy(t, env)
	return env, func() {
		if dump := read(filepath.Join(dir, "app.sql")); !strings.Contains(dump, "CREATE TABLE `orders`") || strings.Contains(dump, "snib_locks") {
			t.Errorf("the backup lacks the table orders, or has that of snib:\n%s", dump)
		}
		shell(t, dir, env, "mysqldump app >rows.sql; grep -q deploy rows.sql")
		end()
		for _, backup := range []string{"app.sql", "rows.sql"} {
			checkRestore(t, backup, func() { shell(t, dir, env, "mysql -e 'DROP TABLE app.snib_locks'; mysql app <"+backup) })
		}
	}
}
