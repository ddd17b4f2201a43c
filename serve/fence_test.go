package serve

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// fence asks a resource to let a hold in.
func (r *replica) fence(resource, id string, token uint64, want int) *answer {
	r.t.Helper()
	return r.post(wire.PathFence, wire.Fence{Resource: resource, ID: longID(id), Token: token}, want)
}

// TestFence has holds come to a resource, through two replicas that share a guard. None is let in
// after a later one, or after another one with the same token.
func TestFence(t *testing.T) {
	store, guard := new(memlock.Store), new(fence.Memory)
	first, second := startReplica(t, store, Options{Fence: guard}), startReplica(t, store, Options{Fence: guard})
	old := first.acquire(msg("job", "a"))
	first.fence("disk", old.ID, old.Token, http.StatusNoContent)
	first.release(old)
	later := second.acquire(msg("job", "b"))
	for _, r := range []*replica{first, second} { // the old hold is the last one that has come
		r.fence("disk", old.ID, old.Token, http.StatusNoContent)
		r.fence("disk", "a", old.Token, http.StatusNoContent) // by the id of its request
	}
	second.fence("disk", later.ID, later.Token, http.StatusNoContent)
	for _, r := range []*replica{first, second} {
		r.fence("disk", later.ID, later.Token, http.StatusNoContent)
		checkFenced(t, r.fence("disk", old.ID, old.Token, http.StatusConflict), wire.ProblemStale, later.Token)
		checkFenced(t, r.fence("disk", "c", later.Token, http.StatusConflict), wire.ProblemSameToken, later.Token)
	}
	first.fence("tape", old.ID, old.Token, http.StatusNoContent) // it has seen no other hold
}

// checkFenced checks a refusal, which has the token of the last hold, and no id.
func checkFenced(t *testing.T, a *answer, kind string, token uint64) {
	t.Helper()
	if a.problem.Kind() != kind || strings.Contains(a.text, "--") {
		t.Errorf("the refusal is %s, want %q", a.text, kind)
	}
	err := fence.CheckResponse(envHold{}, &http.Response{StatusCode: a.status, Header: a.header})
	var refused *fence.RefusedError
	if !errors.As(err, &refused) || refused.Last.Token != token {
		t.Errorf("package fence reads the refusal as %v, want the token %d", err, token)
	}
}

// envHold is a hold of the client that package fence asks about.
type envHold struct{}

func (envHold) Name() string  { return "job" }
func (envHold) Token() uint64 { return 1 }
func (envHold) ID() string    { return "a" }

// TestFenceNamespaces has two principals with one name for two resources.
func TestFenceNamespaces(t *testing.T) {
	store, guard := new(memlock.Store), new(fence.Memory)
	start := func(prefix string) *replica {
		return startReplica(t, store, Options{Access: &testAccess{prefix: prefix}, Fence: guard})
	}
	red, blue := start("red/"), start("blue/")
	red.fence("disk", "a", 9, http.StatusNoContent)
	blue.fence("disk", "a", 3, http.StatusNoContent)
	if got := red.fence("disk", "a", 8, http.StatusConflict); strings.Contains(got.text, "red/") {
		t.Errorf("the answer shows the prefix: %s", got.text)
	}
	// A name that would reach into the other namespace stays in one's own.
	red.fence("../blue/disk", "a", 1, http.StatusNoContent)
	red.fence("blue/disk", "a", 1, http.StatusNoContent)
	checkFenced(t, blue.fence("disk", "a", 2, http.StatusConflict), wire.ProblemStale, 3)
}

// brokenGuard is a guard that fails.
type brokenGuard struct{ err error }

func (g brokenGuard) Do(context.Context, fence.Mark, func(context.Context) error) error { return g.err }

// TestFenceGuardFails checks that no hold is let in whose mark is not remembered. The store of the
// locks is not called down for that, nor because its id can't be read, or a check takes too long.
func TestFenceGuardFails(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{driver.ErrUnavailable, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusServiceUnavailable},
		{errors.New("secret of the database"), http.StatusInternalServerError},
	} {
		r := startReplica(t, new(memlock.Store), Options{Fence: brokenGuard{tt.err},
			Identity: func(context.Context) (string, error) { return "", tt.err },
			Doctor:   func(context.Context) ([]wire.Finding, error) { return nil, tt.err },
			Leaks:    func(context.Context) ([]wire.Leak, error) { return nil, tt.err }})
		if got := r.fence("disk", "a", 1, tt.want); strings.Contains(got.text, "secret") {
			t.Errorf("the answer is %s", got.text)
		}
		for _, path := range []string{wire.PathStore, wire.PathDoctor, wire.PathLeaks} {
			r.check(r.send(t.Context(), http.MethodGet, path, "", ""), path, tt.want)
		}
		if !r.service.Stats().StoreUp {
			t.Errorf("after %v the store is called down", tt.err)
		}
	}
}
