package mysqllock_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/mysqllock"
)

// jobEnv makes the test binary do a job instead of running tests, so that tests have real processes to kill.
const jobEnv = "SNIB_MYSQL_TEST_JOB"

func TestMain(m *testing.M) {
	text := os.Getenv(jobEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.do()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// A job is what a child process does. It ends when its standard input is closed, at the latest.
type job struct {
	Role    string
	DSN     string
	Session bool
	Req     driver.Request
	Rounds  int
	Log     string
}

func (j job) do() error {
	db, err := sql.Open("mysql", j.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	var d driver.Driver = mysqllock.New(db)
	if j.Session {
		d = mysqllock.NewSession(db)
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	switch j.Role {
	case "hold":
		return j.hold(ctx, d)
	case "contend":
		return j.contend(ctx, d)
	default:
		return errors.New("no such role: " + j.Role)
	}
}

// hold takes the lease, says so, and renews it until the process is told to end.
func (j job) hold(ctx context.Context, d driver.Driver) error {
	l, err := d.Acquire(ctx, j.Req)
	if err != nil {
		return err
	}
	fmt.Println("held", l.Grant().Token)
	tick := time.NewTicker(j.Req.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.Renew(ctx, []driver.Lease{l})[0].Err; errors.Is(err, driver.ErrLost) {
				fmt.Println("lost", err)
				return nil
			}
		case <-ctx.Done():
			return l.Release(context.Background())
		}
	}
}

// contend takes and releases the lock many times; each time it appends its token to a file that only the lock guards.
func (j job) contend(ctx context.Context, d driver.Driver) error {
	for i := range j.Rounds {
		req := j.Req
		req.Owner += fmt.Sprint(i)
		l, err := d.Acquire(ctx, req)
		if err != nil {
			return err
		}
		if err := appendToken(j.Log, l.Grant().Token); err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
	}
	fmt.Println("done")
	return nil
}

// appendToken replaces the whole file, which loses lines if another does so at the same time, but none if it is killed.
func appendToken(path string, token uint64) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next := fmt.Sprint(path, ".", os.Getpid())
	if err := os.WriteFile(next, fmt.Appendf(old, "%d\n", token), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// A proc is a child process with a job.
type proc struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// start starts a child process, which is killed with the test.
func start(t testing.TB, j job) *proc {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{t: t, cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	t.Cleanup(p.kill)
	return p
}

// expect reads a line that must begin with word.
func (p *proc) expect(word string) string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the process ended; want a line %q", word)
	}
	rest, ok := strings.CutPrefix(p.lines.Text(), word)
	if !ok {
		p.t.Fatalf("the process says %q, want %q", p.lines.Text(), word)
	}
	return strings.TrimSpace(rest)
}

func (p *proc) holding() *proc {
	p.t.Helper()
	p.expect("held")
	return p
}

// kill ends the process as kill -9 does.
func (p *proc) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Signal(syscall.SIGKILL)
		p.cmd.Wait()
	}
}
