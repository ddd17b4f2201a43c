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
// everything with locks, and others nothing. With c on a folder, they can keep its lock taken.
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

	wrong := openDriver(t, single, zklock.Timeout(longTimeout), zklock.Digest("snib", "wrong"))
	defer wrong.Close()
	if _, err := wrong.Acquire(t.Context(), request("job", "x")); !errors.Is(err, zk.ErrNoAuth) ||
		errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire with the wrong password = %v, want %v", err, zk.ErrNoAuth)
	}
	if err := member.Break(t.Context(), "job", l.ID()); err != nil {
		t.Errorf("Break = %v", err)
	}
	livetest.AwaitLoss(t, told, livetest.Patience)
	next := w.Get(t)

	// With c on a folder, anybody can keep the lock taken, until somebody breaks that. A node with a
	// name of its own is no lock.
	const folder = "/snib/job"
	own, _, err := user.GetACL(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.SetACL(folder, append(own, zk.WorldACL(zk.PermCreate)...), -1); err != nil {
		t.Fatal(err)
	}
	stranger := newStranger(t, server.Addr())
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
