package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A console is a command on its own terminal, and the person at the keyboard.
type console struct {
	*proc
	keys *os.File

	mu     sync.Mutex
	screen strings.Builder
}

// startOnTerminal starts a command as the leader of a new session on a new terminal.
func startOnTerminal(t *testing.T, args ...string) *console {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	c := &console{keys: os.NewFile(uintptr(fd), "ptmx")}
	t.Cleanup(func() { c.keys.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	restoreSignals()
	p := &proc{Cmd: command(t, args...), t: t, exited: make(chan struct{})}
	p.Stdin, p.Stdout, p.Stderr = tty, tty, tty
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	c.proc = p
	go c.readScreen()
	t.Cleanup(p.kill)
	go func() {
		_ = p.Cmd.Wait() // the method wait looks at the state
		close(p.exited)
	}()
	return c
}

func (c *console) readScreen() {
	buf := make([]byte, 4096)
	for {
		n, err := c.keys.Read(buf)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.screen.Write(buf[:n])
		c.mu.Unlock()
	}
}

func (c *console) screenText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.screen.String()
}

// awaitScreen waits until the screen matches the pattern.
func (c *console) awaitScreen(pattern string) {
	c.t.Helper()
	re := regexp.MustCompile(pattern)
	if !poll(func() bool { return re.MatchString(c.screenText()) }) {
		c.t.Fatalf("no match for %q on the screen:\n%s", pattern, c.screenText())
	}
}

func (c *console) press(keys string) {
	c.t.Helper()
	if _, err := c.keys.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// exitSignal returns the signal that ended the command itself, or 0.
func (c *console) exitSignal() syscall.Signal {
	c.wait()
	if ws := c.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return ws.Signal()
	}
	return 0
}

// TestCtrlC checks that the command gets SIGINT once and may handle it, and that snib run waits
// for it.
func TestCtrlC(t *testing.T) {
	for _, tt := range []struct{ name, format string }{
		{"Foreground", `exec snib run name -- sigs %s interrupt`},
		// The shell's group keeps the terminal.
		{"Pipeline", `snib run name -- sigs %s interrupt | cat`},
		{"NoInput", `exec snib run name -- sigs %s interrupt </dev/null`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := filepath.Join(newStore(t), "signals")
			c := startOnTerminal(t, "sh", "-c", `trap "" INT; trap : INT; `+fmt.Sprintf(tt.format, log))
			awaitText(t, log, "ready")
			c.press(ctrlC)
			awaitText(t, log, "interrupt")
			c.wait()
			if got := strings.Count(read(log), "interrupt"); got != 1 {
				t.Errorf("the command got SIGINT %d times", got)
			}
			if out, code := snib(t, "run", "-n", "name", "--", "true"); code != 0 {
				t.Errorf("the lock is still there: %s", out)
			}
		})
	}
}

// TestCtrlCEndsTheScript checks that a command that dies of Ctrl-C ends the script around it,
// as it would without snib.
func TestCtrlCEndsTheScript(t *testing.T) {
	dir := newStore(t)
	c := startOnTerminal(t, "snib", "run", "name", "--", "sh", "-c", "echo up; exec sleep 60")
	c.awaitScreen("up")
	c.press(ctrlC)
	if got := c.exitSignal(); got != syscall.SIGINT {
		t.Errorf("snib ended with %v, want death by SIGINT", c.ProcessState)
	}
	c = startOnTerminal(t, "sh", "-c", "snib run name -- sh -c 'echo up; exec sleep 60'; touch "+dir+"/next")
	c.awaitScreen("up")
	c.press(ctrlC)
	if got := c.exitSignal(); got != syscall.SIGINT || exists(dir+"/next") {
		t.Errorf("the script ended with %v; did it go on: %v", c.ProcessState, exists(dir+"/next"))
	}
}

// TestCtrlZ stops the command. It must keep the lock past its TTL. A second Ctrl-Z continues it.
func TestCtrlZ(t *testing.T) {
	for _, tt := range []struct{ name, format string }{
		{"Foreground", `exec snib run --ttl 5s name -- sigs %s interrupt`},
		{"NoInput", `exec snib run --ttl 5s name -- sigs %s interrupt </dev/null`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := filepath.Join(newStore(t), "signals")
			c := startOnTerminal(t, "sh", "-c", fmt.Sprintf(tt.format, log))
			awaitText(t, log, "ready")
			var pid int
			if _, err := fmt.Sscanf(read(log), "ready %d", &pid); err != nil {
				t.Fatal(err)
			}
			c.press(ctrlZ)
			c.awaitScreen(`snib: stopped, and still holding name: Ctrl-Z goes on, Ctrl-C ends it`)
			if state, _ := procState(pid); state != 'T' {
				t.Errorf("state of the command = %c, want T", state)
			}
			await(t, "hold longer than its TTL", func() bool { return heldFor(t, "name") > 6*time.Second })
			c.press(ctrlZ)
			awaitText(t, log, "continued")
			c.press(ctrlZ)
			await(t, "second stop", func() bool { return strings.Count(c.screenText(), "still holding") == 2 })
			c.press(ctrlC) // continues it and interrupts it
			if code := c.wait(); code != 0 {
				t.Errorf("exit code = %d, want the command's 0\n%s", code, c.screenText())
			}
			if got := strings.Count(read(log), "interrupt"); got != 1 {
				t.Errorf("the command got SIGINT %d times", got)
			}
		})
	}
}

// TestTyping checks that typed input goes to the command, in a pipeline too, and to the script
// again when the command has ended.
func TestTyping(t *testing.T) {
	dir := newStore(t)
	c := startOnTerminal(t, "sh", "-c", `snib run name -- sh -c 'read a; echo "[got $a]"'; read b; echo "[then $b]"`)
	c.press("one\n")
	c.awaitScreen(`\[got one\]`)
	c.press("two\n")
	c.awaitScreen(`\[then two\]`)
	// The same if the program could not be started at first, or at all.
	script, broken := filepath.Join(dir, "script"), filepath.Join(dir, "broken")
	write(t, script, `read a; echo "[got $a]"`)
	write(t, broken, "#!/no/such/interpreter")
	c = startOnTerminal(t, "sh", "-c", "snib run name -- "+broken+"; snib run name -- "+script+`; read b; echo "[then $b]"`)
	c.press("one\n")
	c.awaitScreen(`\[got one\]`)
	c.press("two\n")
	c.awaitScreen(`\[then two\]`)
	c = startOnTerminal(t, "sh", "-c", `snib run name -- sh -c 'read a </dev/tty; echo "[got $a]"' | cat; read b; echo "[then $b]"`)
	c.press("one\n")
	c.awaitScreen(`\[got one\]`)
	c.press("two\n")
	c.awaitScreen(`\[then two\]`)
}

// write creates an executable file.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestJobControl checks that a command in the background that wants the terminal gets it when
// the user brings it to the foreground.
func TestJobControl(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	newStore(t)
	c := startOnTerminal(t, "bash", "--norc", "--noprofile", "-i")
	c.press("PS1=prompt:; snib run name -- sh -c 'read a; echo \"[got $a]\"' &\n")
	c.awaitScreen(`snib: the command was stopped \(stopped \(tty input\)\), and still holds name`)
	c.press("fg\n")
	c.awaitScreen(`fg\r\n`)
	c.press("one\n")
	c.awaitScreen(`\[got one\]`)
	c.press("echo [prompt $?]\n")
	c.awaitScreen(`\[prompt 0\]`)
}

// TestWaitingLine checks that a user who waits sees who holds the lock, on one
// line that is removed later.
func TestWaitingLine(t *testing.T) {
	newStore(t)
	_, stop := startHolder(t, "name")
	startWaiter(t, "name")
	c := startOnTerminal(t, "snib", "run", "name", "--", "echo", "mine")
	c.awaitScreen(`\r\x1b\[Ksnib: waiting for name, 1 ahead: held by \S+ pid \d+ \(hold by `)
	if strings.Contains(c.screenText(), "\n") {
		t.Errorf("it is more than a line: %q", c.screenText())
	}
	stop()
	c.awaitScreen(`\r\x1b\[Kmine\r\n$`)
	c.wait()
}

// TestCtrlCWhileWaiting checks that an interrupted waiter leaves nothing in the queue.
func TestCtrlCWhileWaiting(t *testing.T) {
	newStore(t)
	startHolder(t, "name")
	c := startOnTerminal(t, "snib", "run", "name", "--", "true")
	c.awaitScreen("waiting for name")
	c.press(ctrlC)
	if got := c.exitSignal(); got != syscall.SIGINT {
		t.Errorf("snib ended with %v, want death by SIGINT", c.ProcessState)
	}
	if out, _ := snib(t, "show", "name"); strings.Contains(out, "waiting") {
		t.Errorf("it still waits:\n%s", out)
	}
}

// TestReleaseAsks checks that on a terminal the user has to type the name.
func TestReleaseAsks(t *testing.T) {
	newStore(t)
	mustSnib(t, "lock", "name", "--ttl", "10m")
	c := startOnTerminal(t, "snib", "release", "name", "--force")
	c.awaitScreen(`snib: name is held by .*\(snib lock by \S+\) for .*, and its lease ends in 9m\d\ds`)
	c.awaitScreen("type the name of the lock to release it: ")
	c.press("nome\n")
	if code := c.wait(); code != 64 {
		t.Errorf("exit code after a wrong name = %d, want 64", code)
	}
	// Somebody else takes the lock while the user is asked. The hold that the
	// user saw no longer exists.
	c = startOnTerminal(t, "snib", "release", "name", "--force")
	c.awaitScreen("type the name")
	snib(t, "release", "name", "--force", "--yes")
	snib(t, "lock", "name", "--ttl", "10m")
	c.press("name\n")
	if code := c.wait(); code != 75 {
		t.Errorf("exit code after a change = %d, want 75\n%s", code, c.screenText())
	}
	c = startOnTerminal(t, "snib", "release", "name", "--force")
	c.awaitScreen("type the name")
	c.press("name\n")
	c.awaitScreen(`"outcome":"broken"`)
	if code := c.wait(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
}
