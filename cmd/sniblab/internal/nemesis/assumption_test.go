//go:build linux

package nemesis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
)

// An assumption is a sentence that drivers state, with what happens if it does not hold.
// The page has a row for each assumption.
type assumption struct {
	sites  string // the names of the sites whose drivers state it
	says   string // the sentence; if it ends with an ellipsis, only the beginning of the sentence
	done   string // how the test breaks it
	wrong  string // the consequence
	breach func(*site)
}

// matches reports whether text is the sentence.
func (a assumption) matches(text string) bool {
	begin, open := strings.CutSuffix(a.says, "…")
	return text == a.says || open && strings.HasPrefix(text, begin)
}

// assumptionsOf returns the table's entries for a site. It fails t for a stated sentence
// without an entry, and for an entry whose sentence the site's driver does not state.
func assumptionsOf(t *testing.T, name string, info driver.Info) []assumption {
	t.Helper()
	stated := slices.Clone(info.Assumptions)
	for _, text := range info.Unmet {
		stated = append(stated, "not met: "+text)
	}
	var all []assumption
	for _, a := range assumptions {
		if !slices.Contains(strings.Fields(a.sites), name) {
			continue
		}
		all = append(all, a)
		if !slices.ContainsFunc(stated, a.matches) {
			t.Errorf("the driver of %s does not state %q", name, a.says)
		}
	}
	for _, text := range stated {
		if !slices.ContainsFunc(all, func(a assumption) bool { return a.matches(text) }) {
			t.Errorf("the driver of %s states %q, and no entry says what happens if that does not hold", name, text)
		}
	}
	return all
}

// TestAssumptions breaks each assumption that a driver states, and checks that the
// promise that depends on it is then broken: an assumption that can be broken
// without harm should not be stated.
func TestAssumptions(t *testing.T) {
	if *totalTime == 0 || *chosenSetups != "" || *onlyFaults != "" {
		t.Skip("it starts all servers, and belongs to a run of all set-ups (make nemesis)")
	}
	for _, place := range sites {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t}
			place.start(s)
			locker := s.locker(t, s.Store, longTTL)
			for i, a := range assumptionsOf(t, place.name, locker.Info()) {
				t.Run(strings.ReplaceAll(a.says, " ", "-"), func(t *testing.T) {
					entry := s.on(s.Store)
					entry.t, entry.lock = t, fmt.Sprintf("assumed-%d", i)
					a.breach(entry)
				})
			}
		})
	}
}

// A versionConn is a connection to a Redis that tells its version and nothing else, which is
// enough for a driver to state its assumptions.
type versionConn struct{ redislock.Conn }

func (c versionConn) Masters(context.Context) ([]redislock.Node, error) {
	return []redislock.Node{c}, nil
}
func (versionConn) Do(context.Context, ...string) ([]string, error) {
	return []string{"redis_version:7.0.0\r\nrole:master\r\nrun_id:1\r\n"}, nil
}
func (versionConn) IsCluster() bool  { return false }
func (versionConn) IsSentinel() bool { return false }
func (versionConn) Close()           {}

// TestAssumptionsStated compares the table with what drivers state before they have
// connected to a server.
func TestAssumptionsStated(t *testing.T) {
	names := map[string]bool{}
	for _, place := range sites {
		names[place.name] = true
		if place.late {
			continue
		}
		s := newStore(place.name, "127.0.0.1:1")
		var d driver.Driver
		var err error
		switch place.name {
		case "redis", "sentinel":
			d, err = redislock.NewConn(t.Context(), versionConn{}, s.RedisOptions()...)
		case "redis-nograce", "cluster":
			d, err = redislock.NewConn(t.Context(), versionConn{}, redislock.FailoverGrace(false))
		case "redlock":
			assumptionsOf(t, place.name, new(redlock.Driver).Info())
			continue
		case "sqlite":
			s.Addrs[0] = t.TempDir() + "/locks.db"
			fallthrough
		default:
			d, err = s.Open(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		assumptionsOf(t, place.name, d.Info())
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, a := range assumptions {
		for name := range strings.FieldsSeq(a.sites) {
			if !names[name] {
				t.Errorf("%q: there is no site %q", a.says, name)
			}
		}
		if a.done == "" || a.wrong == "" || a.breach == nil {
			t.Errorf("%q: the entry is not complete", a.says)
		}
	}
}

// assumptionTable returns the page's table of assumptions.
func assumptionTable() string {
	var out strings.Builder
	fmt.Fprintln(&out, "\n| store | assumption | what is done | what goes wrong |")
	fmt.Fprintln(&out, "| --- | --- | --- | --- |")
	for _, a := range assumptions {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", strings.Join(strings.Fields(a.sites), ", "), a.says, a.done, a.wrong)
	}
	out.WriteString("\n")
	return out.String()
}

// A site is a store on which assumptions are broken while two processes use it: the first
// connects through proxies, and the second comes later.
type site struct {
	t           *testing.T
	lock        string
	store.Store // without the proxies
	siteServers

	mu      *sync.Mutex
	proxies map[string]*livetest.Proxy // of the first process, by server address; guarded by mu
}

// overlapTTL is the TTL of a hold that others overlap, if leases have one. It is longer
// than a run and than the grace period.
const overlapTTL = 5 * time.Minute

// clockStep is by how much clocks are set. It is longer than overlapTTL.
const clockStep = 4 * overlapTTL

// locker returns the Locker of a new process, which is closed when t ends. If leases
// have a TTL, ttl is that of its holds.
func (s *site) locker(t *testing.T, at store.Store, ttl time.Duration) *snib.Locker {
	t.Helper()
	var d driver.Driver
	livetest.Await(t, "driver", func() (err error) {
		d, err = at.Open(t.Context())
		if errors.Is(err, driver.ErrInvalid) {
			t.Fatal(err)
		}
		return err
	})
	var opts []snib.Option
	if info := d.Info(); info.Tenure == driver.TenureLease {
		opts = append(opts, snib.TTL(min(ttl, cmp.Or(info.MaxTTL, ttl))))
	}
	locker, err := snib.New(d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() }) // its servers may be gone
	return locker
}

// viaProxies returns the store as the first process connects to it.
func (s *site) viaProxies(to store.Store) store.Store {
	switch to.Kind {
	case "memory", "sqlite":
	case "redis", "cluster", "sentinel", "redlock":
		// Clients learn addresses from servers, or all clients must use the same addresses.
		to.Dial = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", s.proxyAddr(addr))
		}
	default:
		to.Addrs = slices.Clone(to.Addrs)
		for i, addr := range to.Addrs {
			to.Addrs[i] = s.proxyAddr(addr)
		}
	}
	return to
}

// proxyAddr returns the address of the first process's proxy for a server. It
// starts the proxy if necessary.
func (s *site) proxyAddr(addr string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxies[addr] == nil {
		s.proxies[addr] = livetest.NewProxy(s.t, addr)
	}
	return s.proxies[addr].Addr()
}

// cutOff severs the first process from all servers until the test ends.
func (s *site) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		s.t.Cleanup(p.Sever())
	}
}

// on returns the site with another store and new proxies.
func (s *site) on(at store.Store) *site {
	other := *s
	other.Store, other.mu, other.proxies = at, new(sync.Mutex), map[string]*livetest.Proxy{}
	return &other
}

// acquire acquires the lock in a new process.
func (s *site) acquire(at store.Store, ttl time.Duration) *snib.Lock {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	lock, err := s.locker(s.t, at, ttl).Acquire(ctx, s.lock)
	if err != nil {
		s.t.Fatal(err)
	}
	return lock
}

// checkNotGranted checks that a process does not get the lock within timeout, and
// closes its Locker.
func (s *site) checkNotGranted(locker *snib.Locker, timeout time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	lock, err := locker.Acquire(ctx, s.lock)
	if err == nil {
		s.t.Errorf("another process gets the lock, token %d", lock.Token())
	}
	if err := locker.Close(); err != nil {
		s.t.Error(err)
	}
}

// checkRefused checks that a driver for the store can't be opened, or refuses to lock.
func (s *site) checkRefused(at store.Store) {
	s.t.Helper()
	d, err := at.Open(s.t.Context())
	if err == nil {
		defer d.Close() // it has not done anything
		_, err = d.Acquire(s.t.Context(), driver.Request{Name: s.lock, ID: "refused", TTL: time.Second, NoWait: true})
	}
	if !errors.Is(err, driver.ErrInvalid) {
		s.t.Errorf("a lock on %s at %v: %v, want a refusal", at.Kind, at.Addrs, err)
	}
}

// checkAllHold checks that each of the locks is valid now, by the belief of its holder.
func (s *site) checkAllHold(locks ...*snib.Lock) {
	s.t.Helper()
	for i, lock := range locks {
		if err, left := lock.Context().Err(), lock.Validity(); err != nil || left <= 0 {
			s.t.Errorf("process %d: %v, %v left; want two holds at once", i+1, context.Cause(lock.Context()), left)
		}
	}
}

// overlap has a first process acquire the lock, and severs it from the servers. It
// checks that a second process gets the lock only after the breach, while the first
// one still believes that it holds it.
func (s *site) overlap(breach func()) (first, second *snib.Lock) {
	s.t.Helper()
	first = s.acquire(s.viaProxies(s.Store), overlapTTL)
	s.checkNotGranted(s.locker(s.t, s.Store, longTTL), 200*time.Millisecond)
	s.cutOff()
	breach()
	second = s.acquire(s.Store, longTTL)
	s.checkAllHold(first, second)
	return first, second
}

// checkSlowClock stops the clock of a process that holds the lock, and checks that another
// process gets the lock when the lease is over by the clock of the store.
func (s *site) checkSlowClock() {
	s.t.Helper()
	where := s.on(s.Store)
	near := where.viaProxies(s.Store)
	near.Session = zkTimeout
	taken, given := make(chan struct{}), make(chan struct{})
	where.runFrozen(func(t *testing.T) {
		first, err := s.locker(t, near, ttl).Acquire(t.Context(), s.lock)
		if err != nil {
			t.Fatal(err)
		}
		close(taken)
		<-given
		s.checkAllHold(first)
	}, func(done <-chan struct{}) {
		defer close(given)
		select {
		case <-taken:
		case <-done:
			return
		}
		where.cutOff()
		s.checkAllHold(s.acquire(s.Store, ttl))
		given <- struct{}{}
		<-done
	})
}

// runFrozen runs the first process with a stopped clock, and others beside it; done tells
// others when the process has ended. The process runs in a bubble of testing/synctest, in which
// no time passes while it waits for servers. When others returns, the proxies refuse
// connections, so that the process can end.
func (s *site) runFrozen(process func(*testing.T), others func(done <-chan struct{})) {
	s.t.Helper()
	for _, addr := range s.Addrs {
		s.proxyAddr(addr) // the proxies must not belong to the bubble
	}
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer s.hangUp()
		others(done)
	}()
	synctest.Test(s.t, func(t *testing.T) {
		defer func() {
			close(done)
			<-over
		}()
		process(t)
	})
}

// hangUp closes the first process's connections, and refuses new ones.
func (s *site) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		p.Redirect("127.0.0.1:1") // nobody listens there
		p.Heal()
		p.Cut()
	}
}

// useTokens acquires and releases the lock three times in a new process, and
// returns the last token.
func (s *site) useTokens(t *testing.T) (token uint64) {
	t.Helper()
	locker := s.locker(t, s.Store, longTTL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		lock, err := locker.Acquire(ctx, s.lock)
		if err != nil {
			t.Fatal(err)
		}
		token = lock.Token()
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if err := locker.Close(); err != nil {
		t.Error(err)
	}
	return token
}

// checkDisorder checks that a token after the breach is not greater than those before.
func (s *site) checkDisorder(breach func()) {
	s.t.Helper()
	first := s.useTokens(s.t)
	breach()
	s.checkNotGreater(first, s.useTokens(s.t))
}

func (s *site) checkNotGreater(first, second uint64) {
	s.t.Helper()
	if second > first {
		s.t.Errorf("token %d after %d; want one that is not greater", second, first)
	}
}

// backUp copies the server's data. restore kills the server and restarts it with the copy.
func (s *site) backUp(server storedServer) (restore func()) {
	s.t.Helper()
	dir := server.Dir()
	old := dir + ".old"
	s.t.Cleanup(func() { s.run("rm", "-rf", old) })
	server.Stop()
	s.run("cp", "-a", dir, old)
	server.Restart()
	return func() {
		server.Kill()
		s.run("rm", "-rf", dir)
		s.run("mv", old, dir)
		server.Restart()
	}
}

// run runs a program.
func (s *site) run(program string, args ...string) {
	s.t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}
