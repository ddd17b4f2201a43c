package zklock_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// createRoot does with tr what the lines for zkCli.sh on docs/backends/zklock.md do.
func createRoot(t *testing.T, tr tree, password string) {
	t.Helper()
	page, err := os.ReadFile("../docs/backends/zklock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "## Access\n")
	_, block, _ = strings.Cut(block, "```text\n")
	block, _, _ = strings.Cut(block, "```")
	created := false
	for line := range strings.Lines(block) {
		args := strings.Fields(strings.ReplaceAll(line, "PASSWORD", password))
		switch {
		case len(args) == 3 && slices.Equal(args[:2], []string{"addauth", "digest"}):
			err = tr.AddAuth("digest", []byte(args[2]))
		case len(args) == 4 && args[0] == "create" && args[2] == `""` && args[3] == "auth::cdrwa":
			_, err = tr.Create(args[1], nil, zk.FlagPersistent, zk.AuthACL(zk.PermAll))
			created = true
		default:
			t.Fatalf("the page has the line %q, which this test does not know", line)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if !created {
		t.Fatalf("the lines on the page create nothing:\n%s", block)
	}
}

// TestRoles creates the root as docs/backends/zklock.md says. The user of the page can do
// everything with locks. Others can do what their rights allow by the table on the page, and no
// more.
func TestRoles(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	single := []string{server.Addr()}
	user := newStranger(t, server.Addr())
	createRoot(t, user, secret)

	// Everyday operations, with two drivers of the user.
	d, member := newDriver(t, single), newDriver(t, single)
	l, told := livetest.AcquireTold(t, d, request("job", "a"))
	w := livetest.Waiting(t, member, request("job", "b"))
	checkHeld(t, member, "job", "with the password")
	if r := d.Renew(t.Context(), []driver.Lease{l}); r[0].Err != nil {
		t.Errorf("Renew = %v", r[0].Err)
	}
	var names []string
	err := member.List(t.Context(), "", func(st driver.Status) bool { names = append(names, st.Name); return true })
	if err != nil || !slices.Equal(names, []string{"job"}) {
		t.Errorf("List told of %q, %v", names, err)
	}
	for _, more := range []driver.Request{{Shared: true}, {Slots: 2}, {MinHold: 1}} {
		req := request("other", "c")
		req.Shared, req.Slots, req.MinHold = more.Shared, more.Slots, more.MinHold
		release(t, acquire(t, d, req))
	}

	// A stranger, with the wrong password or without one, and as a client that is not ours.
	wrong := openDriver(t, single, zklock.Timeout(longTimeout), zklock.Digest("snib", "wrong"))
	defer wrong.Close()
	nobody := openDriver(t, single, zklock.Timeout(longTimeout))
	defer nobody.Close()
	mustDeny := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, zk.ErrNoAuth) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s = %v, want %v", what, err, zk.ErrNoAuth)
		}
	}
	for what, stranger := range map[string]*zklock.Driver{"with the wrong password": wrong, "without a password": nobody} {
		for _, name := range []string{"job", "free"} {
			_, err := stranger.Acquire(t.Context(), request(name, "x"))
			mustDeny("Acquire "+what, err)
		}
		_, err = stranger.Status(t.Context(), "job")
		mustDeny("Status "+what, err)
		mustDeny("Break "+what, stranger.Break(t.Context(), "job", l.ID()))
	}
	const folder = "/snib/job"
	node := user.nodeOf(folder, l.Grant().Token)
	stranger := newStranger(t, server.Addr())
	tryAll := func(what string) {
		t.Helper()
		_, err := stranger.Create(folder+"/block", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		mustDeny("Create "+what, err)
		mustDeny("Delete "+what, stranger.Delete(node, -1))
		_, err = stranger.Set(node, nil, -1)
		mustDeny("Set "+what, err)
		_, err = stranger.SetACL(folder, zk.WorldACL(zk.PermAll), -1)
		mustDeny("SetACL "+what, err)
	}
	tryAll("without rights")
	_, _, err = stranger.Get(node)
	mustDeny("Get without rights", err)

	// With r on a folder, a stranger sees the nodes in it, and can do no more.
	own, _, err := user.GetACL(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.SetACL(folder, append(own, zk.WorldACL(zk.PermRead)...), -1); err != nil {
		t.Fatal(err)
	}
	if seen, _, err := stranger.Children(folder); err != nil || len(seen) != 2 {
		t.Errorf("Children with r = %q, %v; want a holder and a waiter", seen, err)
	}
	tryAll("with r")
	checkHeld(t, member, "job", "after all of that")
	w.Running(t, "after all of that")

	// With d on a folder, anybody can free the lock: the holder is told, and tokens rise.
	if _, err := user.SetACL(folder, append(own, zk.WorldACL(zk.PermDelete)...), -1); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Delete(node, -1); err != nil {
		t.Errorf("Delete with d = %v", err)
	}
	livetest.AwaitLoss(t, told, livetest.Patience)
	next := w.Get(t)
	if next.Grant().Token <= l.Grant().Token {
		t.Errorf("Token = %d after %d", next.Grant().Token, l.Grant().Token)
	}

	// With c on a folder, anybody can keep the lock taken, until somebody breaks that. A node with a
	// name of its own is no lock.
	if _, err := user.SetACL(folder, append(own, zk.WorldACL(zk.PermCreate)...), -1); err != nil {
		t.Fatal(err)
	}
	block := func(name string) (path string) {
		t.Helper()
		path, err := stranger.Create(folder+"/"+name, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Errorf("Create with c = %v", err)
		}
		return path
	}
	other := block("block-")
	release(t, next)
	if _, err := d.Acquire(t.Context(), request("job", "a")); !errors.Is(err, driver.ErrKind) {
		t.Errorf("Acquire behind a node that is no lock = %v, want ErrKind", err)
	}
	block("_c_00000000-0000-4000-8000-000000000000-lock-")
	if err := user.Delete(other, -1); err != nil {
		t.Fatal(err)
	}
	checkHeld(t, d, "job", "by a node that belongs to no session")
	st, err := d.Status(t.Context(), "job")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v; want a holder", st, err)
	}
	if err := d.Break(t.Context(), "job", st.Holders[0].ID); err != nil {
		t.Errorf("Break of that node = %v", err)
	}
	release(t, acquire(t, d, request("job", "a")))
}
