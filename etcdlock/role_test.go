package etcdlock_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestRoles runs the commands by which docs/backends/etcdlock.md limits a program to the locks of
// a prefix. A user with that role can do everything with these locks, and take no others.
func TestRoles(t *testing.T) {
	t.Parallel()
	const password = "a secret of the role"
	server := etcdtest.Start(t)
	page, err := os.ReadFile("../docs/backends/etcdlock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "## Access\n")
	_, block, _ = strings.Cut(block, "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	enabled := false
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " # ")
		command, ok := strings.CutPrefix(line, "etcdctl ")
		switch {
		case !ok:
			t.Fatalf("the page has the line %q, which is no etcdctl", line)
		case command == "auth enable":
			server.RequireLogin()
			enabled = true
		default:
			args := strings.Fields(command)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "PASSWORD", password)
			}
			server.Ctl(args...)
		}
	}
	if !enabled {
		t.Fatalf("the commands on the page do not enable logins:\n%s", block)
	}
	client := dialAs(t, "snib", password, []string{server.Addr()})
	d, member := open(t, client), open(t, dialAs(t, "snib", password, []string{server.Addr()}))

	// Everyday operations, with two drivers that have the role.
	l, told := livetest.AcquireTold(t, d, request("team/job", "a"))
	w := livetest.Waiting(t, member, request("team/job", "b"))
	checkHeld(t, member, "team/job", "with the role")
	if r := d.Renew(t.Context(), []driver.Lease{l}); r[0].Err != nil {
		t.Errorf("Renew = %v", r[0].Err)
	}
	var names []string
	err = member.List(t.Context(), "team/", func(st driver.Status) bool { names = append(names, st.Name); return true })
	if err != nil || !slices.Equal(names, []string{"team/job"}) {
		t.Errorf("List told of %q, %v", names, err)
	}
	for _, more := range []driver.Request{{Shared: true}, {Slots: 2}, {MinHold: 1}} {
		req := noWait("team/other", "c")
		req.Shared, req.Slots, req.MinHold = more.Shared, more.Slots, more.MinHold
		release(t, acquire(t, d, req))
		livetest.Await(t, "end of MinHold", func() error {
			st, err := d.Status(t.Context(), "team/other")
			if err == nil && len(st.Holders) > 0 {
				err = driver.ErrHeld
			}
			return err
		})
	}

	if _, err := d.Acquire(t.Context(), request("elsewhere", "a")); !errors.Is(err, rpctypes.ErrPermissionDenied) ||
		errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "the role needs") {
		t.Errorf("Acquire outside the prefix = %v, want %v, and what the role needs", err, rpctypes.ErrPermissionDenied)
	}

	// With the role, anybody can free a lock, and the next one gets it.
	if err := member.Break(t.Context(), "team/job", l.ID()); err != nil {
		t.Errorf("Break = %v", err)
	}
	livetest.AwaitLoss(t, told, livetest.Patience)
	release(t, w.Get(t))
	awaitNoKeys(t, client, "team/job")
}
