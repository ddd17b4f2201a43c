//go:build unix

package served

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// TestClients runs the clients of the examples in Python and Node.js, with two replicas: a replica
// is killed, answers are lost, and a client is stopped for longer than its TTL of 10 s.
func TestClients(t *testing.T) {
	for _, language := range []struct{ program, file string }{{"python3", "python/service_lock.py"}, {"node", "node/service_lock.mjs"}} {
		t.Run(language.program, func(t *testing.T) {
			t.Parallel()
			needProgram(t, language.program)
			dir := t.TempDir()
			agent := "agent" + filepath.Ext(language.file)
			for _, file := range []string{"clients/" + agent, "../../../../examples/" + language.file} {
				text, err := os.ReadFile(file)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for name, test := range map[string]func(*clientWorld){
				"KilledReplica": (*clientWorld).killReplica, "LostAnswers": (*clientWorld).loseAnswers, "PausedClient": (*clientWorld).pauseClient,
				"Outage": (*clientWorld).outage, "TwoRequests": (*clientWorld).failTwo, "LateAnswers": (*clientWorld).delayAnswers,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(newClientWorld(t, language.program, filepath.Join(dir, agent)))
				})
			}
		})
	}
}

func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		livetest.Missing(t, strings.TrimSuffix(name, "3"), err.Error())
	}
}

// TestClientOnPage runs the client in Python as docs/serve.md shows it.
func TestClientOnPage(t *testing.T) {
	needProgram(t, "python3")
	page, err := os.ReadFile("../../../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```python\n")
	block, _, _ = strings.Cut(block, "```")
	w := newClientWorld(t, "", "")
	cmd := exec.Command("python3", "-B", "-c", strings.ReplaceAll(block, "127.0.0.1:7420", w.proxies[0].Addr()))
	cmd.Dir = "../../../../examples/python"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	b, err := w.store.Open().Status(t.Context(), "jobs/report")
	if err != nil || len(b.Holders) > 0 {
		t.Errorf("the lock is %+v, %v, want it free", b, err)
	}
}

// A clientWorld has two replicas behind proxies. The first renewal meets a limit of a proxy.
type clientWorld struct {
	*testing.T
	program, script string
	store           *memlock.Store
	replicas        []*httptest.Server
	proxies         []*livetest.Proxy
	refusals        refusals
	limit           atomic.Int32 // how many renewals a proxy still refuses
	delays          sync.Map     // by path, a func() that delays the next answer
}

// refusals are what a replica does with two requests that come at the same time: it refuses the
// first once the second has come, and the second once another replica has served the first.
type refusals struct {
	isOn         atomic.Bool
	came         atomic.Int32
	both, served chan bool
}

func (m *refusals) refuse(w http.ResponseWriter, r *http.Request) {
	await := func(event <-chan bool) {
		select {
		case <-event:
		case <-r.Context().Done():
		}
	}
	switch m.came.Add(1) {
	case 1:
		await(m.both)
	case 2:
		close(m.both)
		await(m.served)
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

func newClientWorld(t *testing.T, program, script string) *clientWorld {
	w := &clientWorld{T: t, program: program, script: script, store: new(memlock.Store)}
	w.refusals.both, w.refusals.served = make(chan bool), make(chan bool, 10)
	w.limit.Store(1)
	guard := new(fence.Memory)
	for i := range 2 {
		s, err := serve.New(w.store.Open(), serve.Options{Fence: guard})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			isFence := r.URL.Path == wire.PathFence && w.refusals.isOn.Load()
			switch {
			case r.URL.Path == wire.PathRenew && w.limit.Add(-1) >= 0:
				http.Error(rw, "<p>slow down</p>", http.StatusTooManyRequests)
			case isFence && i == 0:
				w.refusals.refuse(rw, r)
			default:
				s.ServeHTTP(rw, r)
				if delay, ok := w.delays.LoadAndDelete(r.URL.Path); ok {
					delay.(func())()
					_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{}) // that of the service is over
				}
			}
			if isFence && i == 1 {
				w.refusals.served <- true
			}
		}))
		t.Cleanup(func() {
			r.CloseClientConnections()
			r.Close()
			_ = s.Drain(t.Context()) // nothing is under way
		})
		w.replicas, w.proxies = append(w.replicas, r), append(w.proxies, livetest.NewProxy(t, r.Listener.Addr().String()))
	}
	return w
}

// A clientProcess is an agent.
type clientProcess struct {
	*testing.T
	cmd   *exec.Cmd
	tell  io.Writer
	lines chan string
}

func (w *clientWorld) start() *clientProcess {
	w.Helper()
	cmd := exec.Command(w.program, w.script, "http://"+w.proxies[0].Addr(), "http://"+w.proxies[1].Addr())
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		w.Fatal("the client does not start: ", cmd.Err)
	}
	p := &clientProcess{w.T, cmd, in, make(chan string, 10)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return p
}

// expect reads what the client says next, and returns what follows the word.
func (p *clientProcess) expect(word string) string {
	p.Helper()
	select {
	case line := <-p.lines:
		got, rest, _ := strings.Cut(line, " ")
		if got != word {
			p.Fatalf("the client says %q, want %q", line, word)
		}
		return rest
	case <-time.After(livetest.Patience):
		p.Fatalf("the client does not say %q", word)
		return ""
	}
}

// does tells the client to do something, and returns its token.
func (p *clientProcess) does(what string) (token string) {
	p.Helper()
	p.tellOnly(what)
	return p.expect("done")
}

// fails tells the client to do something, which fails with an error of this type.
func (p *clientProcess) fails(what, with string) {
	p.Helper()
	p.tellOnly(what)
	p.expect(with)
}

func (p *clientProcess) tellOnly(what string) {
	p.Helper()
	if _, err := io.WriteString(p.tell, what+"\n"); err != nil {
		p.Fatal(err)
	}
}

// longerThanTTL is how long a hold lasts only if it is renewed.
const longerThanTTL = 11 * time.Second

func (w *clientWorld) killReplica() {
	a, b, c := w.start(), w.start(), w.start()
	a.does("acquire")
	w.replicas[0].CloseClientConnections()
	w.replicas[0].Close()
	time.Sleep(longerThanTTL)
	a.does("check")
	b.fails("try", "LockHeld")
	c.tellOnly("acquire")
	a.does("release")
	c.expect("done")
	c.does("release")
}

func (w *clientWorld) loseAnswers() {
	a, b := w.start(), w.start()
	w.proxies[0].LoseAnswers(1, livetest.ThenClose, wire.PathAcquire)
	a.does("acquire")
	w.proxies[1].LoseAnswers(1, livetest.ThenHang, wire.PathRenew)
	time.Sleep(longerThanTTL)
	a.does("fence")
	w.proxies[0].LoseAnswers(1, livetest.ThenClose, wire.PathRelease)
	a.does("release")
	b.does("try")
	w.proxies[0].LoseAnswers(1, livetest.ThenClose, wire.PathRelease)
	w.proxies[1].LoseAnswers(1, livetest.ThenClose, wire.PathRelease)
	b.fails("release", "Unavailable")
	b.does("release")
}

func (w *clientWorld) pauseClient() {
	a, b := w.start(), w.start()
	old := a.does("acquire")
	a.does("fence")
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.Fatal(err)
	}
	if next := b.does("acquire"); next <= old {
		w.Errorf("the second hold has the token %s, want one above %s", next, old)
	}
	b.does("fence")
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		w.Fatal(err)
	}
	a.expect("lost")
	a.fails("check", "LockLost")
	a.fails("fence", "LockLost")
	a.fails("release", "LockLost")
	b.does("check")
	b.does("release")
}

// outage asks when nobody answers. Neither is the lock held by somebody then, nor is a hold lost
// because a request was wrong.
func (w *clientWorld) outage() {
	a, b := w.start(), w.start()
	a.does("acquire")
	b.fails("wait", "LockHeld")
	b.fails("fence", map[string]string{"python3": "ValueError", "node": "Error"}[w.program]) // it has no token
	for _, r := range w.replicas {
		r.CloseClientConnections()
		r.Close()
	}
	a.fails("release", "Unavailable") // soon, before its lease is over
	b.fails("wait", "Unavailable")
	b.fails("try", "Unavailable")
}

// delayAnswers answers an acquisition later than the hold lasts. That is neither a hold, nor one of
// somebody else. And it answers a renewal after the client has found that its hold is over.
func (w *clientWorld) delayAnswers() {
	a, renewed, answer := w.start(), make(chan string, 1), make(chan bool)
	w.delays.Store(wire.PathAcquire, func() { time.Sleep(longerThanTTL) })
	a.does("acquire")
	w.delays.Store(wire.PathRenew, func() { w.limit.Store(1000); renewed <- ""; <-answer })
	next(w.T, renewed)
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.Fatal(err)
	}
	close(answer)
	time.Sleep(8 * time.Second) // longer than the hold lasted then, and shorter than the renewed one
	w.limit.Store(0)
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		w.Fatal(err)
	}
	a.expect("lost")
	a.fails("check", "LockLost")
}

// failTwo sends two requests at the same time, which the same replica fails. Each goes on with the
// other one, which serves both.
func (w *clientWorld) failTwo() {
	a := w.start()
	a.does("acquire")
	w.refusals.isOn.Store(true)
	a.does("fences")
	a.does("release")
}
