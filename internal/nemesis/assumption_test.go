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
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redlock"
)

// An assumption is a sentence that drivers state, with what happens if it does not hold. The page
// has a row for each.
type assumption struct {
	sites  string // the names of those whose drivers state it
	says   string // the sentence; one that ends with "…" only begins so
	done   string // what breaks it
	wrong  string // what happens then
	breach func(*site)
}

// matches reports whether it is the sentence.
func (a assumption) matches(text string) bool {
	begin, open := strings.CutSuffix(a.says, "…")
	return text == a.says || open && strings.HasPrefix(text, begin)
}

// assumptionsOf returns the table's entries for a site. It fails t for a sentence without an
// entry, and for an entry whose sentence the site's driver does not state.
func assumptionsOf(t *testing.T, name string, stated []string) []assumption {
	t.Helper()
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

// TestAssumptions breaks each assumption that a driver states, and wants the promise to be broken
// that rests on it: an assumption that can be broken without harm should not be stated.
func TestAssumptions(t *testing.T) {
	if *total == 0 || *chosen != "" || *only != "" {
		t.Skip("it starts all servers, and belongs to a run of all set-ups (make nemesis)")
	}
	for _, place := range sites {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t}
			place.start(s)
			locker := s.locker(t, s.Store, longTTL)
			for i, a := range assumptionsOf(t, place.name, locker.Info().Assumptions) {
				t.Run(strings.ReplaceAll(a.says, " ", "-"), func(t *testing.T) {
					entry := s.on(s.Store)
					entry.t, entry.lock = t, fmt.Sprintf("assumed-%d", i)
					a.breach(entry)
				})
			}
		})
	}
}

// TestAssumptionsStated compares the table with what drivers state before they have seen a server.
func TestAssumptionsStated(t *testing.T) {
	names := map[string]bool{}
	for _, place := range sites {
		names[place.name] = true
		if place.late {
			continue
		}
		s := Store{Kind: place.name, Addrs: []string{"127.0.0.1:1"}}
		var info driver.Info
		switch place.name {
		case "redis", "sentinel":
			info = redislock.Promises(s.redisOptions()...)
		case "redis-nograce", "cluster":
			info = redislock.Promises(redislock.FailoverGrace(false))
		case "redlock":
			info = redlock.Promises(5)
		case "sqlite", "sqlite-clock":
			s.Addrs[0] = t.TempDir() + "/locks.db"
			fallthrough
		default:
			d, err := s.open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			info = d.Info()
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		assumptionsOf(t, place.name, info.Assumptions)
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

// assumptionTable is that of the page.
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

// A site is a store on which assumptions are broken, while two processes use it: one that reaches
// it through proxies, and one that comes later.
type site struct {
	t     *testing.T
	lock  string
	Store // past the proxies
	servers

	mu      *sync.Mutex
	proxies map[string]*livetest.Proxy // of the first process, by server; guarded by mu
}

// term is the TTL of a hold that others overlap, where leases have one: longer than what a run
// takes, and than the grace.
const term = 5 * time.Minute

// leap is by how much clocks are set: longer than that.
const leap = 4 * term

// locker returns a process's Locker, which ends with t. Where leases have a TTL, it is that of its
// holds.
func (s *site) locker(t *testing.T, store Store, ttl time.Duration) *snib.Locker {
	t.Helper()
	var d driver.Driver
	livetest.Await(t, "driver", func() (err error) {
		d, err = store.open(t.Context())
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

// near is how the first process reaches a store.
func (s *site) near(store Store) Store {
	switch store.Kind {
	case "memory", "sqlite", "sqlite-clock":
	case "redis", "cluster", "sentinel", "redlock":
		// Clients learn addresses from servers, or all must have the same.
		store.dial = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", s.through(addr))
		}
	default:
		store.Addrs = slices.Clone(store.Addrs)
		for i, addr := range store.Addrs {
			store.Addrs[i] = s.through(addr)
		}
	}
	return store
}

// through returns the address of the first process's proxy before a server.
func (s *site) through(addr string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proxies[addr] == nil {
		s.proxies[addr] = livetest.NewProxy(s.t, addr)
	}
	return s.proxies[addr].Addr()
}

// cutOff has the first process hear nothing any more until the entry ends.
func (s *site) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		s.t.Cleanup(p.Sever())
	}
}

// on returns the site with another store.
func (s *site) on(store Store) *site {
	other := *s
	other.Store, other.mu, other.proxies = store, new(sync.Mutex), map[string]*livetest.Proxy{}
	return &other
}

// take waits for the lock in a new process.
func (s *site) take(store Store, ttl time.Duration) *snib.Lock {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	lock, err := s.locker(s.t, store, ttl).Acquire(ctx, s.lock)
	if err != nil {
		s.t.Fatal(err)
	}
	return lock
}

// misses checks that a process does not get the lock, and ends it.
func (s *site) misses(locker *snib.Locker, patience time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	lock, err := locker.Acquire(ctx, s.lock)
	if err == nil {
		s.t.Errorf("another process gets the lock, token %d", lock.Token())
	}
	if err := locker.Close(); err != nil {
		s.t.Error(err)
	}
}

// refused checks that a driver for the store is not made, or does not lock.
func (s *site) refused(store Store) {
	s.t.Helper()
	d, err := store.open(s.t.Context())
	if err == nil {
		defer d.Close() // it has not done anything
		_, err = d.Acquire(s.t.Context(), driver.Request{Name: s.lock, Owner: "refused", TTL: time.Second, NoWait: true})
	}
	if !errors.Is(err, driver.ErrInvalid) {
		s.t.Errorf("a lock on %s at %v: %v, want a refusal", store.Kind, store.Addrs, err)
	}
}

// both checks that two processes hold the lock at the moment, and are told that it is theirs.
func (s *site) both(locks ...*snib.Lock) {
	s.t.Helper()
	for i, lock := range locks {
		if err, left := lock.Context().Err(), lock.Validity(); err != nil || left <= 0 {
			s.t.Errorf("process %d: %v, %v left; want two holds at once", i+1, context.Cause(lock.Context()), left)
		}
	}
}

// overlap has a process take the lock and hear nothing any more. It then does the breach, and
// wants another process to get the lock as well, which it would not without.
func (s *site) overlap(breach func()) (first, second *snib.Lock) {
	s.t.Helper()
	first = s.take(s.near(s.Store), term)
	s.misses(s.locker(s.t, s.Store, longTTL), 200*time.Millisecond)
	s.cutOff()
	breach()
	second = s.take(s.Store, longTTL)
	s.both(first, second)
	return first, second
}

// slow has the clock of a process that holds the lock stand still, and wants another process to get
// the lock as well, when the lease is over by the clock of the store.
func (s *site) slow() {
	s.t.Helper()
	where := s.on(s.Store)
	store := where.near(s.Store)
	store.Session = zkTimeout
	taken, given := make(chan struct{}), make(chan struct{})
	where.still(func(t *testing.T) {
		first, err := s.locker(t, store, ttl).Acquire(t.Context(), s.lock)
		if err != nil {
			t.Fatal(err)
		}
		close(taken)
		<-given
		s.both(first)
	}, func(done <-chan struct{}) {
		defer close(given)
		select {
		case <-taken:
		case <-done:
			return
		}
		where.cutOff()
		s.both(s.take(s.Store, ttl))
		given <- struct{}{}
		<-done
	})
}

// still runs the first process with a clock that stands still, and beside it what others do. They
// are told when it is done. It lives in a bubble of testing/synctest, in which no time passes while
// it waits for servers. So that it can end they refuse its connections at last.
func (s *site) still(process func(*testing.T), others func(done <-chan struct{})) {
	s.t.Helper()
	for _, addr := range s.Addrs {
		s.through(addr) // what the proxies consist of may not belong to the bubble
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

// hangUp ends the first process's connections, and refuses it others.
func (s *site) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		p.Redirect("127.0.0.1:1") // where nobody listens
		p.Heal()
		p.Cut()
	}
}

// spend takes and releases the lock in a new process, a few times, and returns the last token.
func (s *site) spend(t *testing.T) (token uint64) {
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

// disorder wants a token after a breach not to be greater than those before.
func (s *site) disorder(breach func()) {
	s.t.Helper()
	first := s.spend(s.t)
	breach()
	s.behind(first, s.spend(s.t))
}

func (s *site) behind(first, second uint64) {
	s.t.Helper()
	if second > first {
		s.t.Errorf("token %d after %d; want one that is not greater", second, first)
	}
}

// copied copies the server's data. restore kills the server, and starts it with the copy.
func (s *site) copied(server stored) (restore func()) {
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

// run runs a program and returns what it says.
func (s *site) run(program string, args ...string) string {
	s.t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}
