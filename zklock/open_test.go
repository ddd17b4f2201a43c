package zklock_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// TestUnusable checks that every reason why an ensemble can't be reached or used is reported
// clearly and within the dial timeout.
func TestUnusable(t *testing.T) {
	server := zktest.Single(t, zktest.TLS)
	tree := newTree(t, server.Addr())
	for path, acl := range map[string][]zk.ACL{
		"/theirs":  zk.DigestACL(zk.PermAll, "somebody", "else"),
		"/snib":    zk.WorldACL(zk.PermAll),
		"/anyone":  zk.WorldACL(zk.PermAll),
		"/readers": zk.WorldACL(zk.PermRead),
	} {
		if _, err := tree.Create(path, nil, zk.FlagPersistent, acl); err != nil {
			t.Fatal(err)
		}
	}
	single := []string{server.Addr()}
	missing := newDriver(t, single, zklock.Root("/missing"))
	if _, err := missing.Status(t.Context(), "job"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Status below a root that does not exist = %v, want ErrInvalid", err)
	}
	ensemble := zktest.Ensemble(t)
	ensemble.Servers[0].Kill()
	ensemble.Servers[1].Kill()
	secure, conf := server.Secure()
	stranger := conf.Clone()
	stranger.RootCAs = nil
	hung := livetest.NewProxy(t, server.Addr())
	hung.Sever()
	closed := livetest.FreePort(t)
	tests := []struct {
		name    string
		servers []string
		opts    []zklock.Option
		is      error
		says    []string
		passes  bool // a later attempt may succeed
	}{
		{name: "NothingThere", servers: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(closed))}, says: []string{"within 4s", "refused"}, passes: true},
		{name: "NoQuorum", servers: ensemble.Addrs()[2:], says: []string{"within 4s", "no quorum"}, passes: true},
		{name: "NoQuorumOfAll", servers: ensemble.Addrs(), says: []string{"within 4s"}, passes: true},
		{name: "Hung", servers: []string{hung.Addr()}, says: []string{"within 4s", "does not answer"}, passes: true},
		{name: "NoRoot", servers: single, opts: []zklock.Option{zklock.Root("/missing")}, is: driver.ErrInvalid, says: []string{"/missing does not exist"}},
		{name: "NotOurs", servers: single, opts: []zklock.Option{zklock.Root("/theirs")}, is: zk.ErrNoAuth, says: []string{"/theirs", "ACL"}},
		{name: "WrongPassword", servers: single, opts: []zklock.Option{zklock.Root("/theirs"), zklock.Digest("somebody", secret)},
			is: zk.ErrNoAuth, says: []string{"password may be wrong"}},
		{name: "ReadOnly", servers: single, opts: []zklock.Option{zklock.Root("/readers")}, is: zk.ErrNoAuth, says: []string{"/readers"}},
		{name: "AuthACLWithoutUser", servers: single, opts: []zklock.Option{zklock.ACL(zk.AuthACL(zk.PermAll)...)}, is: driver.ErrInvalid,
			says: []string{"ACL"}},
		{name: "TooLong", servers: single, opts: []zklock.Option{zklock.Timeout(time.Hour)}, is: driver.ErrInvalid, says: []string{"1m0s at most"}},
		{name: "PlainToTLS", servers: []string{secure}, says: []string{"within 4s", "TLS"}, passes: true},
		{name: "TLSToPlain", servers: single, opts: []zklock.Option{zklock.TLS(conf)}, says: []string{"within 4s", "for TLS", "other way round"}, passes: true},
		{name: "Untrusted", servers: []string{secure}, opts: []zklock.Option{zklock.TLS(stranger)}, says: []string{"certificate"}},
		{name: "WrongName", servers: []string{secure}, opts: []zklock.Option{zklock.TLS(&tls.Config{RootCAs: conf.RootCAs, ServerName: "elsewhere"})},
			says: []string{"elsewhere"}},
		{name: "NoSuchHost", servers: []string{"nosuch.invalid:2181"}, says: []string{"nosuch.invalid"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := openDriver(t, tt.servers,
				append([]zklock.Option{zklock.DialTimeout(4 * time.Second), zklock.Timeout(4 * time.Second)}, tt.opts...)...)
			defer d.Close()
			for _, noWait := range []bool{false, true} {
				req := request("job", "a")
				req.NoWait = noWait
				// A machine that is too busy for a handshake in time gets another try.
				livetest.Await(t, "answer", func() error {
					began := time.Now()
					_, err := d.Acquire(t.Context(), req)
					switch took := time.Since(began); {
					case took > 10*time.Second:
						return fmt.Errorf("it came after %v: %w", took, err)
					case err == nil || strings.Contains(err.Error(), secret):
						t.Fatalf("Acquire = %v, want an error without a password", err)
					case errors.Is(err, driver.ErrUnavailable) != tt.passes || errors.Is(err, driver.ErrHeld):
						return fmt.Errorf("%w, which matches ErrUnavailable: %v, ErrHeld: %v", err, !tt.passes, errors.Is(err, driver.ErrHeld))
					case tt.is != nil && !errors.Is(err, tt.is):
						return fmt.Errorf("%w, want %w", err, tt.is)
					case slices.ContainsFunc(tt.says, func(part string) bool { return !strings.Contains(err.Error(), part) }):
						return fmt.Errorf("%w, want that it says %q", err, tt.says)
					}
					return nil
				})
			}
		})
	}
}

// TestTLS checks that TLS changes nothing else, and that each server is identified by the name
// by which the driver addresses it.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t, zktest.TLS)
	addr, conf := server.Secure()
	conf.ServerName = ""
	d := newDriver(t, []string{addr}, zklock.TLS(conf))
	l := acquire(t, d, request("job", "a"))
	checkHeld(t, newDriver(t, []string{server.Addr()}), "job", "without TLS, of a lock that is held with it")
	release(t, l)
}

// TestACL checks that nodes are created for the user of Digest only, or as ACL says.
func TestACL(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	single := []string{server.Addr()}
	acquire(t, newDriver(t, single), request("ours", "a"))
	stranger := openDriver(t, single, zklock.Timeout(longTimeout))
	defer stranger.Close()
	_, err := stranger.Status(t.Context(), "ours")
	if !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("Status by a stranger = %v, want %v", err, zk.ErrNoAuth)
	}
	open := newDriver(t, single, zklock.Root("/open"), zklock.ACL(zk.WorldACL(zk.PermAll)...))
	if _, err := newTree(t, server.Addr()).Create("/open", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	acquire(t, open, request("job", "a"))
	guest := openDriver(t, single, zklock.Root("/open"), zklock.Timeout(longTimeout))
	defer guest.Close()
	checkHeld(t, guest, "job", "of a lock that everybody may see")
}

// TestListHidden has a lock that we may not read. List still lists the others, and reports that
// one.
func TestListHidden(t *testing.T) {
	t.Parallel()
	single := []string{zktest.Single(t).Addr()}
	tree := newTree(t, single[0])
	if _, err := tree.Create("/snib", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	theirs := openDriver(t, single, zklock.Timeout(longTimeout), zklock.Digest("somebody", "else"))
	defer theirs.Close()
	acquire(t, theirs, request("b", "they"))
	d := newDriver(t, single)
	for _, name := range []string{"a", "c"} {
		acquire(t, d, request(name, "we"))
	}
	var names []string
	err := d.List(t.Context(), "", func(st driver.Status) bool {
		names = append(names, st.Name)
		return true
	})
	if !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("List told of %q, want those that we may see", names)
	}
	if !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("List = %v, want %v", err, zk.ErrNoAuth)
	}
	checkError(t, err, "/snib/b")
}
