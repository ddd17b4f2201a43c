package livetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// modeVar is the environment variable that makes this test program a server. Its
// value is the server's mode.
const modeVar = "LIVETEST_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		if err := serve(mode, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(Main(m, testJob.do))
}

// serve answers each connection with the id of this process, or that of its child.
func serve(mode, port string) error {
	fmt.Println("mode", mode)
	id := os.Getpid()
	switch mode {
	case "broken":
		return errors.New("no such option: colour")
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "parent":
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			return err
		}
		id = child.Process.Pid
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		fmt.Fprintln(conn, id)
		conn.Close()
	}
}

// testCommand returns the command for a server with the given mode.
func testCommand(t testing.TB, mode string) Command {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{
		Name: mode,
		Path: path,
		Args: func(port int) []string { return []string{strconv.Itoa(port)} },
		Env:  []string{modeVar + "=" + mode},
	}
}

// askPID returns the process id with which a server answers.
func askPID(t *testing.T, addr string) int {
	t.Helper()
	n, err := tryAskPID(addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryAskPID(addr string, limit time.Duration) (int, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// checkGone returns nil if there is no such process, not even a dead one.
func checkGone(pid int) error {
	if err := syscall.Kill(pid, 0); err == nil {
		return fmt.Errorf("process %d is there", pid)
	} else if !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("look for process %d: %w", pid, err)
	}
	return nil
}

// stateOf returns the letter for the state of a process, X if it is gone.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return state(string(stat))
}

// checkDead returns nil if a process is dead, whether its parent has reaped it or not.
func checkDead(pid int) error {
	if got := stateOf(pid); got != "X" && got != "Z" {
		return fmt.Errorf("the state of process %d is %s", pid, got)
	}
	return nil
}

func TestProcess(t *testing.T) {
	p := Start(t, testCommand(t, "plain"))
	pid := p.PID()
	if got := askPID(t, p.Addr()); got != pid || !p.Up() {
		t.Errorf("process %d answers, up = %v, want %d, true", got, p.Up(), pid)
	}
	tests := []struct {
		name string
		end  func()
	}{
		{"Kill", p.Kill},
		{"Stop", p.Stop},
		{"KillHung", func() { p.Hang(); p.Kill() }},
		{"StopHung", func() { p.Hang(); p.Stop() }},
		{"Restart", p.Restart},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pid, addr := p.PID(), p.Addr()
			tt.end()
			if err := checkGone(pid); err != nil {
				t.Error(err)
			}
			if tt.name != "Restart" {
				if _, err := tryAskPID(addr, time.Second); !errors.Is(err, syscall.ECONNREFUSED) || p.Up() {
					t.Errorf("answer = %v, up = %v, want %v, false", err, p.Up(), syscall.ECONNREFUSED)
				}
				p.Stop() // another call does no harm
				p.Kill()
				p.Restart()
			}
			if got := askPID(t, addr); got != p.PID() || got == pid || !p.Up() {
				t.Errorf("after Restart process %d answers, up = %v, want %d and not %d, true", got, p.Up(), p.PID(), pid)
			}
		})
	}
	if got := strings.Count(p.Output(), "mode plain\n"); got != 1+len(tests) {
		t.Errorf("output of %d runs, want %d", got, 1+len(tests))
	}
}

func TestHang(t *testing.T) {
	p := Start(t, testCommand(t, "plain"))
	p.Hang()
	if _, err := tryAskPID(p.Addr(), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || p.Up() {
		t.Errorf("answer of a hung server = %v, up = %v, want %v, false", err, p.Up(), os.ErrDeadlineExceeded)
	}
	p.Resume()
	if got := askPID(t, p.Addr()); got != p.PID() || !p.Up() {
		t.Errorf("after Resume process %d answers, up = %v, want %d, true", got, p.Up(), p.PID())
	}
}

func TestChildren(t *testing.T) {
	p := Start(t, testCommand(t, "parent"))
	child := askPID(t, p.Addr())
	p.Hang()
	if got := stateOf(child); got != "T" {
		t.Errorf("state of the child of a hung server = %s, want T", got)
	}
	p.Resume()
	if got := stateOf(child); got == "T" || got == "X" {
		t.Errorf("state of the child after Resume = %s, want that of the living", got)
	}
	p.Kill()
	Await(t, "end of the child", func() error { return checkDead(child) })
}

func TestStopStubborn(t *testing.T) {
	c := testCommand(t, "stubborn")
	c.Grace = 50 * time.Millisecond
	p := Start(t, c)
	p.Stop()
	if err := checkGone(p.PID()); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	var pids []int
	t.Run("Test", func(t *testing.T) {
		for _, p := range StartAll(t, testCommand(t, "plain"), testCommand(t, "stubborn"), testCommand(t, "plain")) {
			pids = append(pids, p.PID())
			if p.PID()%2 == 0 {
				p.Hang()
			}
		}
	})
	for _, pid := range pids {
		if err := checkGone(pid); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingOutlives kills another process of this test program, and checks that the
// server that it started ends as well.
func TestNothingOutlives(t *testing.T) {
	const inner = "LIVETEST_INNER"
	if os.Getenv(inner) != "" {
		fmt.Println("pid", Start(t, testCommand(t, "plain")).PID())
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlives$", "-test.v")
	cmd.Env = append(os.Environ(), inner+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "pid %d", &pid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if pid == 0 {
		t.Fatal("the inner test has started no server")
	}
	Await(t, "end of the server", func() error { return checkDead(pid) })
}

func TestStartFails(t *testing.T) {
	_, err := start(t, testCommand(t, "broken"))
	for _, want := range []string{"exit status 1", "no such option: colour"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start = %v, want %q in it", err, want)
		}
	}
}

// TestReport checks what a server leaves in the log of its test.
func TestReport(t *testing.T) {
	tests := []struct {
		name   string
		end    func(*Process)
		failed string
		logged string
	}{
		{name: "Told", end: (*Process).Kill},
		{name: "Up", end: func(*Process) {}},
		{name: "ByItself", failed: "ended by itself: signal: killed", logged: "mode plain", end: func(p *Process) {
			syscall.Kill(p.PID(), syscall.SIGKILL)
			<-p.run.ended
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := runRecorded(t, func(tb testing.TB) {
				p := Start(tb, testCommand(t, "plain"))
				tt.end(p)
				tb.(*recorder).cleanup()
			})
			if !strings.Contains(r.failed, tt.failed) || (r.failed == "") != (tt.failed == "") {
				t.Errorf("failed with %q, want %q", r.failed, tt.failed)
			}
			if !strings.Contains(r.logged, tt.logged) || (r.logged == "") != (tt.logged == "") {
				t.Errorf("logged %q, want %q", r.logged, tt.logged)
			}
		})
	}
}

func TestPortTaken(t *testing.T) {
	var taken []net.Listener
	c := testCommand(t, "plain")
	args := c.Args
	c.Args = func(port int) []string {
		if len(taken) < 2 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Error(err)
			}
			taken = append(taken, l)
		}
		return args(port)
	}
	c.Ready = func(addr string) error { // the default would accept the other listener
		_, err := tryAskPID(addr, 20*time.Millisecond)
		return err
	}
	p := Start(t, c)
	for _, l := range taken {
		if l.Close(); l.Addr().String() == p.Addr() {
			t.Errorf("the server is at %s, which was taken", p.Addr())
		}
	}
	if got := askPID(t, p.Addr()); got != p.PID() {
		t.Errorf("process %d answers, want %d", got, p.PID())
	}
}

// TestFreePort also shows what the reservation of a port is good for.
func TestFreePort(t *testing.T) {
	port := FreePort(t, 1)
	for _, port := range []int{port, port + 1} {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial to a port that only we hold = %v, want %v", err, syscall.ECONNREFUSED)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("Listen = %v, want nil", err)
			continue
		}
		l.Close()
	}
	if _, release, err := reservePort(port + 1); !errors.Is(err, syscall.EADDRINUSE) {
		release()
		t.Errorf("hold of a port that is held = %v, want EADDRINUSE: a server beside another one would get its port", err)
	}
	if other := FreePort(t); other == port || other == port+1 {
		t.Errorf("FreePort = %d, which is taken", other)
	}
}

// TestCPU checks that the processor time of a process includes that of its children, those that
// have ended, too.
func TestCPU(t *testing.T) {
	before := cpuTime(os.Getpid())
	if before <= 0 {
		t.Errorf("processor time of this process = %v, want some", before)
	}
	child := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; exec cat")
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the child says %q, %v", line, err)
	}
	running := cpuTime(os.Getpid()) - before
	hold.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	used := child.ProcessState.UserTime() + child.ProcessState.SystemTime()
	ended := cpuTime(os.Getpid()) - before
	const tick = 10 * time.Millisecond // the kernel counts the time of ended children in ticks
	if running < used-2*tick || ended < used-2*tick {
		t.Errorf("a child used %v, and the sum grew by %v while it ran, and by %v in all", used, running, ended)
	}
}
