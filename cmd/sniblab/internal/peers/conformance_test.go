package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/peers/golang"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// TestMain makes this process one of a target in Go.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && golang.Has(os.Args[2]) {
		if err := golang.Serve(os.Args[2], os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestNode checks the targets for Node.js, whose packages package interop installs as well.
func TestNode(t *testing.T) {
	checkAll(t, func(p Peer) bool { return p.kit == node })
}

// TestAll checks all targets. It installs the libraries of all languages.
func TestAll(t *testing.T) {
	livetest.Long(t)
	checkAll(t, func(Peer) bool { return true })
}

func checkAll(t *testing.T, of func(Peer) bool) {
	stores := newStores(t)
	for _, p := range All() {
		if of(p) {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				command, err := p.Install(t.Context(), func() { t.Logf("installing %s", p.Library) })
				if err != nil {
					livetest.Missing(t, server(p), err.Error())
				}
				check(t, p, command, stores.url(t, p.Store))
			})
		}
	}
}

// TestPerl checks the example for those who write a target in another language.
func TestPerl(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if err != nil {
		livetest.Missing(t, "perl", "perl is not installed")
	}
	p := Peer{Name: "perl", Tokens: true}
	check(t, p, []string{perl, "testdata/lock.pl"}, newStores(t).url(t, trial.Redis))
}

// testTTL is longer than any of the targets waits for a lock that is held.
const testTTL = 6 * time.Second

// stays says whose lock stays when its holder has died.
var stays = map[string]bool{"redis-py": true, "python-redis-lock": true}

// check runs two clients of a target: one holds the lock, the other is denied, gets it
// after the release, hands it over, and dies with it.
func check(t *testing.T, p Peer, command []string, url string) {
	a, b := start(t, p, command, url, "A"), start(t, p, command, url, "B")
	first := a.acquire(t, target.Granted)
	b.acquire(t, target.Denied)
	a.held(t)
	a.release(t)
	second := b.acquire(t, target.Granted)
	b.held(t)

	granted := make(chan target.Message, 1)
	a.send(target.Message{Type: target.Acquire, Wait: 3000})
	go func() { granted <- a.answer(t) }()
	b.release(t)
	third := <-granted
	if third.Type == target.Denied { // its tries were over just before
		third = a.acquire(t, target.Granted)
	}
	if third.Type != target.Granted {
		t.Errorf("the waiter gets %+v after the release", third)
	}
	if p.Tokens && (first.Token == 0 || second.Token <= first.Token || third.Token <= second.Token) {
		t.Errorf("tokens are %d, %d, %d", first.Token, second.Token, third.Token)
	}

	a.process.Kill()
	if stays[p.Name] {
		b.acquire(t, target.Denied)
		return
	}
	livetest.Await(t, "the lock of a holder that has died", func() error {
		if m := b.ask(t, target.Message{Type: target.Acquire, Wait: 1000}); m.Type != target.Granted {
			return fmt.Errorf("the answer is %+v", m)
		}
		return nil
	})
	b.release(t)
}

// server returns the name in SNIB_REQUIRE of what a target needs.
func server(p Peer) string {
	if p.kit == node || p.kit == python {
		return p.kit.name
	}
	return "peers"
}

// A client is a target's process, of which we ask one thing at a time.
type client struct {
	process *target.Process
	answers chan target.Message
	id      int64
}

func start(t *testing.T, p Peer, command []string, url, name string) *client {
	t.Helper()
	c := &client{answers: make(chan target.Message, 10)}
	var err error
	c.process, err = target.Start(t.Context(), command, nil, target.Message{
		URL: url, Name: "lab-" + p.Name, TTL: testTTL.Milliseconds(), Client: name,
	}, func(m target.Message) { c.answers <- m })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.process.Kill)
	return c
}

func (c *client) send(m target.Message) {
	if m.Type == target.Acquire {
		c.id++
	}
	m.ID = c.id
	c.process.Send(m)
}

// answer returns the next message, which is none of a lost lock.
func (c *client) answer(t *testing.T) target.Message {
	t.Helper()
	for {
		select {
		case m := <-c.answers:
			if m.Type != target.Lost || m.ID == c.id {
				return m
			}
		case <-c.process.Failed():
			t.Error(c.process.Err())
			return target.Message{}
		case <-time.After(livetest.Patience):
			t.Error("the target does not answer")
			return target.Message{}
		}
	}
}

func (c *client) ask(t *testing.T, m target.Message) target.Message {
	t.Helper()
	c.send(m)
	return c.answer(t)
}

func (c *client) acquire(t *testing.T, want target.Type) target.Message {
	t.Helper()
	wait := testTTL
	if want == target.Denied {
		wait = time.Second
	}
	m := c.ask(t, target.Message{Type: target.Acquire, Wait: wait.Milliseconds()})
	if m.Type != want {
		t.Fatalf("the answer to acquire is %+v, want %s", m, want)
	}
	return m
}

func (c *client) held(t *testing.T) {
	t.Helper()
	if m := c.ask(t, target.Message{Type: target.Check}); !m.Held {
		t.Errorf("the answer to held is %+v", m)
	}
}

func (c *client) release(t *testing.T) {
	t.Helper()
	if m := c.ask(t, target.Message{Type: target.Release}); m.Type != target.Released {
		t.Errorf("the answer to release is %+v", m)
	}
}

// stores starts each store that is asked for once.
type stores map[trial.StoreKind]func() string

func newStores(t *testing.T) stores {
	return stores{
		trial.Redis:    sync.OnceValue(func() string { return "redis://" + redistest.Single(t).Addr() }),
		trial.Postgres: sync.OnceValue(func() string { return pgtest.Start(t).URL() }),
		trial.MySQL: sync.OnceValue(func() string {
			return fmt.Sprintf("mysql://%s:%s@%s/%s", mysqltest.User, mysqltest.Password(), mysqltest.Start(t).Addr(), mysqltest.Database)
		}),
		trial.Etcd:      sync.OnceValue(func() string { return "etcd://" + etcdtest.Start(t).Addr() }),
		trial.ZooKeeper: sync.OnceValue(func() string { return "zk://" + zktest.Single(t).Addr() }),
	}
}

func (s stores) url(t *testing.T, kind trial.StoreKind) string {
	if kind == trial.File {
		return filepath.Join(t.TempDir(), "lock")
	}
	return s[kind]()
}
