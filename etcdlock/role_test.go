package etcdlock_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestRoles runs the commands by which docs/backends/etcdlock.md limits a program to the locks of
// a prefix. A user with that role can do everything with these locks, and nothing with others.
// Users with less can do what the table on the page says, and no more.
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
			for user, right := range map[string]string{"viewer": "read", "guest": ""} {
				server.Ctl("user", "add", user+":"+password)
				if right != "" {
					server.Ctl("role", "add", user)
					server.Ctl("role", "grant-permission", user, "--prefix=true", right, "team/")
					server.Ctl("user", "grant-role", user, user)
				}
			}
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
	as := func(user string) (*clientv3.Client, *etcdlock.Driver) {
		client := dialAs(t, user, password, []string{server.Addr()})
		return client, open(t, client)
	}
	mustDeny := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s = %v, want %v", what, err, rpctypes.ErrPermissionDenied)
		}
	}

	_, d := as("snib")
	memberClient, member := as("snib")
	viewerClient, viewer := as("viewer")
	guestClient, guest := as("guest")

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

	// A user who may only read sees the lock. Neither this user nor one without permissions can take
	// or free it.
	st, err := viewer.Status(t.Context(), "team/job")
	if err != nil || len(st.Holders) != 1 || len(st.Waiters) != 1 {
		t.Errorf("Status by a user who may read = %+v, %v; want a holder and a waiter", st, err)
	}
	_, err = guest.Status(t.Context(), "team/job")
	mustDeny("Status by a user without permissions", err)
	for what, weak := range map[string]*etcdlock.Driver{"read": viewer, "nothing": guest} {
		_, err := weak.Acquire(t.Context(), request("team/free", "x"))
		mustDeny("Acquire by a user who may "+what, err)
		mustDeny("Break by a user who may "+what, weak.Break(t.Context(), "team/job", l.ID()))
	}
	_, err = d.Acquire(t.Context(), request("elsewhere", "a"))
	mustDeny("Acquire outside the prefix", err)
	holderKeys := keys(t, memberClient, "team/job")
	session := leaseIn(t, holderKeys[0])
	for what, weak := range map[string]*clientv3.Client{"read": viewerClient, "nothing": guestClient} {
		_, err := weak.Revoke(t.Context(), session)
		mustDeny("Revoke of the holder's session by a user who may "+what, err)
		_, err = weak.Delete(t.Context(), holderKeys[0])
		mustDeny("Delete of the holder's key by a user who may "+what, err)
		_, err = weak.Put(t.Context(), "team/job/block", "")
		mustDeny("Put of a key by a user who may "+what, err)
		granted, err := weak.Grant(t.Context(), 60)
		if err != nil {
			t.Errorf("Grant of a lease by a user who may %s = %v; the page says that a login is enough", what, err)
			continue
		}
		_, err = weak.Put(t.Context(), "team/free/block", "", clientv3.WithLease(granted.ID))
		mustDeny("Put of a key with a lease by a user who may "+what, err)
		_, err = weak.KeepAliveOnce(t.Context(), session)
		mustDeny("KeepAliveOnce of the holder's session by a user who may "+what, err)
	}
	checkHeld(t, member, "team/job", "after all of that")
	w.Running(t, "after all of that")

	// With the role, anybody can free a lock, and the next one gets it.
	if err := member.Break(t.Context(), "team/job", l.ID()); err != nil {
		t.Errorf("Break = %v", err)
	}
	livetest.AwaitLoss(t, told, livetest.Patience)
	release(t, w.Get(t))
	acquire(t, d, request("team/job", "a"))
	if _, err := memberClient.Revoke(t.Context(), session); err != nil {
		t.Errorf("Revoke of a session whose keys all lie under the prefix = %v", err)
	}
	awaitNoKeys(t, memberClient, "team/job")
}
