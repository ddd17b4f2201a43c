package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// TestProblems sends requests that can't be served. Each is answered with its problem, and no lock
// is taken.
func TestProblems(t *testing.T) {
	store := new(memlock.Store)
	r := startReplica(t, store, Options{MaxBody: 2000})
	tests := []struct {
		name, method, path, contentType, body string
		kind                                  string
	}{
		{"NoJSON", "POST", wire.PathAcquire, wire.TypeJSON, "name=x", wire.ProblemInvalid},
		{"Empty", "POST", wire.PathAcquire, wire.TypeJSON, "", wire.ProblemInvalid},
		{"Early", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x"`, wire.ProblemInvalid},
		{"Two", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x"}{"name":"y"}`, wire.ProblemInvalid},
		{"UnknownField", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","ttl":5}`, wire.ProblemInvalid},
		{"WrongType", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":5}`, wire.ProblemInvalid},
		{"NotUTF8", "POST", wire.PathAcquire, wire.TypeJSON, "{\"name\":\"\xff\"}", wire.ProblemInvalid},
		{"NoName", "POST", wire.PathAcquire, wire.TypeJSON, `{}`, wire.ProblemInvalid},
		{"NUL", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"a\u0000b"}`, wire.ProblemInvalid},
		{"LongName", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"` + strings.Repeat("n", 513) + `"}`, wire.ProblemInvalid},
		{"LongOwner", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","owner":"` + strings.Repeat("o", 513) + `"}`, wire.ProblemInvalid},
		{"LongLabel", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","label":"` + strings.Repeat("l", 1025) + `"}`, wire.ProblemInvalid},
		{"Attempt", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","attempt":"a.b"}`, wire.ProblemInvalid},
		{"TTL", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","ttl_ms":-1}`, wire.ProblemInvalid},
		{"Slots", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","slots":-1}`, wire.ProblemInvalid},
		{"Kinds", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","slots":1,"shared":true}`, wire.ProblemInvalid},
		{"Fencing", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","fencing":"durable"}`, wire.ProblemInvalid},
		{"NoFencing", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","fencing":"much"}`, wire.ProblemInvalid},
		{"NoToken", "POST", wire.PathRelease, wire.TypeJSON, `{"name":"x","owner":"o"}`, wire.ProblemInvalid},
		{"NoOwner", "POST", wire.PathRenew, wire.TypeJSON, `{"name":"x","token":1}`, wire.ProblemInvalid},
		{"BothForms", "POST", wire.PathRenew, wire.TypeJSON, `{"name":"x","leases":[{"name":"x","owner":"o","token":1}]}`, wire.ProblemInvalid},
		{"LabelNoTTL", "POST", wire.PathLabel, wire.TypeJSON, `{"name":"x","owner":"o","token":1,"label":"l"}`, wire.ProblemInvalid},
		{"NoReason", "POST", wire.PathBreak, wire.TypeJSON, `{"name":"x","token":1}`, wire.ProblemInvalid},
		{"NoResource", "POST", wire.PathFence, wire.TypeJSON, `{"owner":"o","token":1}`, wire.ProblemInvalid},
		{"FenceNoOwner", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","token":1}`, wire.ProblemInvalid},
		{"FenceNoToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","owner":"o"}`, wire.ProblemInvalid},
		{"NoSuchToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","owner":"o","token":9000000000000000}`, wire.ProblemInvalid},
		{"HugeToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","owner":"o","token":18446744073709551615}`, wire.ProblemInvalid},
		{"NegativeToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","owner":"o","token":-1}`, wire.ProblemInvalid},
		{"NoGuard", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","owner":"o","token":1}`, wire.ProblemPath},
		{"Form", "POST", wire.PathAcquire, "application/x-www-form-urlencoded", `{"name":"x"}`, wire.ProblemContentType},
		{"NoContentType", "POST", wire.PathAcquire, "", `{"name":"x"}`, wire.ProblemContentType},
		{"Huge", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"` + strings.Repeat("n", 3000) + `"}`, wire.ProblemTooLarge},
		{"Path", "GET", "/v1/nothing", "", "", wire.ProblemPath},
		{"Traversal", "GET", "/v1/../v1/store", "", "", wire.ProblemPath},
		{"Slashes", "GET", "//v1/store", "", "", wire.ProblemPath},
		{"Escaped", "GET", "/v1/%2e%2e/v1/store", "", "", wire.ProblemPath},
		{"GetAcquire", "GET", wire.PathAcquire, "", "", wire.ProblemMethod},
		{"PostLock", "POST", wire.PathLock, wire.TypeJSON, "{}", wire.ProblemMethod},
		{"Tokens", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","tokens":4097}`, wire.ProblemInvalid},
		{"Query", "GET", wire.PathLock + "?nme=x", "", "", wire.ProblemInvalid},
		{"QueryTwice", "GET", wire.PathLock + "?name=x&name=y", "", "", wire.ProblemInvalid},
		{"QueryEscape", "GET", wire.PathLock + "?name=%zz", "", "", wire.ProblemInvalid},
		{"Limit", "GET", wire.PathLocks + "?limit=0", "", "", wire.ProblemInvalid},
		{"State", "GET", wire.PathLocks + "?state=odd", "", "", wire.ProblemInvalid},
		{"Lost", "POST", wire.PathRenew, wire.TypeJSON, `{"name":"x","owner":"o","token":1}`, wire.ProblemLost},
		{"Changed", "POST", wire.PathBreak, wire.TypeJSON, `{"name":"x","token":1,"reason":"r"}`, wire.ProblemChanged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := r.send(t.Context(), tt.method, tt.path, tt.contentType, tt.body)
			want := wire.NewProblem(tt.kind, "", 0)
			if got == nil || got.status != want.Status || got.problem.Type != want.Type || got.problem.Status != want.Status ||
				got.header.Get("Content-Type") != wire.TypeProblem {
				t.Errorf("%s %s %s = %+v, want %+v", tt.method, tt.path, tt.body, got, want)
			}
		})
	}
	err := store.Open().List(t.Context(), "", func(st driver.Status) bool {
		t.Errorf("a bad request left %+v", st)
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRefused holds a lock under requests that don't wait.
func TestRefused(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	holder := msg("job", "a")
	holder.Label, holder.Host, holder.PID = "release 7", "web-1", 4711
	r.acquire(holder)
	got := r.post(wire.PathAcquire, msg("job", "b"), http.StatusLocked)
	if len(got.problem.Holders) != 1 || got.problem.Holders[0].Process != (wire.Process{Host: "web-1", PID: 4711, Label: "release 7"}) || got.header.Get("Retry-After") != "30" {
		t.Errorf("the refusal is %+v, %q", got, got.header.Get("Retry-After"))
	}
	other := msg("job", "c")
	other.Slots = 2
	if got := r.post(wire.PathAcquire, other, http.StatusConflict); got.problem.Kind() != wire.ProblemKind {
		t.Errorf("for slots of a lock, the problem is %q", got.problem.Kind())
	}
}

// TestLocalOnly checks that a service without access control admits only this host.
func TestLocalOnly(t *testing.T) {
	s, err := New(memlock.New(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := startReplica(t, new(memlock.Store), Options{})
	if got := r.get(wire.PathStore); got.status != http.StatusOK {
		t.Errorf("from this host: %+v", got)
	}
	local := localAddr("127.0.0.1:7420")
	for _, tt := range []struct {
		name, remote, host string
		local              localAddr
		origin             string
		want               int
	}{
		{"Loopback", "127.0.0.1:999", "localhost:7420", local, "", http.StatusOK},
		{"IPv6", "[::1]:999", "[::1]:7420", "[::1]:7420", "", http.StatusOK},
		{"OtherHost", "192.0.2.1:999", "localhost:7420", local, "", http.StatusForbidden},
		{"OtherAddress", "127.0.0.1:999", "localhost:7420", "192.0.2.2:7420", "", http.StatusForbidden},
		{"OtherName", "127.0.0.1:999", "evil.example:7420", local, "", http.StatusForbidden},
		{"OtherSite", "127.0.0.1:999", "localhost:7420", local, "https://evil.example", http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPost, wire.PathAcquire, strings.NewReader(`{"name":"x","owner":"o"}`))
			req.Header.Set("Content-Type", wire.TypeJSON)
			req.RemoteAddr, req.Host = tt.remote, tt.host
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, tt.local))
			w := httptest.NewRecorder()
			s.ServeHTTP(w, req)
			if w.Code != tt.want {
				t.Errorf("answer %d %s, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
}

// localAddr is the address of a server.
type localAddr string

func (a localAddr) Network() string { return "tcp" }
func (a localAddr) String() string  { return string(a) }

// testAccess is an Authorizer that a test controls.
type testAccess struct {
	prefix string
	admin  bool
	begin  func(Action) (func(Outcome) error, error)
}

func (a *testAccess) Authenticate(r *http.Request) (*Principal, error) {
	if r.Header.Get("Origin") != "" {
		return nil, &Refusal{Status: http.StatusUnauthorized, Type: wire.ProblemMissing, Challenge: "Bearer"}
	}
	return &Principal{Name: "test", Prefix: a.prefix}, nil
}

func (a *testAccess) Begin(_ context.Context, _ *Principal, action Action) (func(Outcome) error, error) {
	if a.begin == nil {
		return nil, nil
	}
	return a.begin(action)
}

func (a *testAccess) May(_ *Principal, v Verb, _ string) bool { return v != VerbAdmin || a.admin }

// TestOwnersAreHidden checks that no answer has an owner but those to the owner itself.
func TestOwnersAreHidden(t *testing.T) {
	for _, admin := range []bool{false, true} {
		t.Run(fmt.Sprint("Admin=", admin), func(t *testing.T) {
			r := startReplica(t, new(memlock.Store), Options{Access: &testAccess{admin: admin}})
			r.acquire(msg("job", "secret-holder"))
			for _, owner := range []string{"secret-waiter-1", "secret-waiter-2"} {
				r.queue(msg("job", owner)) // one waits in the store, and one in the replica
			}
			waits := msg("job", "me")
			waits.Wait = 1
			answers := []*answer{
				r.get(wire.PathLock + "?name=job"), r.get(wire.PathLocks), r.lines(""),
				r.post(wire.PathAcquire, msg("job", "me"), http.StatusLocked), r.post(wire.PathAcquire, waits, http.StatusAccepted),
			}
			for i, a := range answers {
				if shown := strings.Contains(a.text, "secret"); shown != admin {
					t.Errorf("answer %d shows owners %v: %s", i, shown, a.text)
				}
				if !strings.Contains(a.text, driver.OwnerDigest("secret-holder")) {
					t.Errorf("answer %d lacks the digest of the owner: %s", i, a.text)
				}
			}
		})
	}
}

// lines lists all locks as lines.
func (r *replica) lines(prefix string) *answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+wire.PathLocks+"?prefix="+prefix, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", wire.TypeLines)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	for d := json.NewDecoder(resp.Body); ; {
		var line json.RawMessage
		if err := d.Decode(&line); err != nil {
			break
		}
		a.text += string(line) + "\n"
	}
	return a
}

// TestOtherOwners checks that only the owner of a hold, with its token, can change it.
func TestOtherOwners(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	g := r1.acquire(msg("job", "a"))
	for _, r := range []*replica{r1, r2} {
		for name, l := range map[string]wire.Lease{
			"another owner": {Name: "job", Owner: "b", Token: g.Token}, "another token": {Name: "job", Owner: g.Owner, Token: g.Token + 1},
			"another suffix": {Name: "job", Owner: newOwnerID("a", "").String(), Token: g.Token}, "another lock": {Name: "jo", Owner: g.Owner, Token: g.Token},
		} {
			t.Run(name, func(t *testing.T) {
				r.post(wire.PathRenew, wire.Renew{Lease: new(l), TTL: long}, http.StatusGone)
				r.post(wire.PathLabel, wire.Label{Lease: l, Label: "x", TTL: long}, http.StatusGone)
				r.post(wire.PathRelease, wire.Release{Lease: l}, http.StatusGone)
			})
		}
	}
	if st := status(t, store, "job"); len(st.Holders) != 1 || st.Holders[0].Holder.Label != "" {
		t.Errorf("the lock is %+v, want the hold as it was", st)
	}
	r2.post(wire.PathRenew, wire.Renew{Lease: &wire.Lease{Name: "job", Owner: "a", Token: g.Token}, TTL: long}, http.StatusOK)
	r1.release(g)
}

// TestBreak ends only the hold that was seen.
func TestBreak(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	first := r.acquire(msg("job", "a"))
	r.release(first)
	second := r.acquire(msg("job", "a"))
	seen := wire.Break{Name: "job", Token: first.Token, Reason: "it hangs"}
	r.post(wire.PathBreak, seen, http.StatusConflict)
	seen.Token, seen.OwnerDigest = second.Token, driver.OwnerDigest("b")
	r.post(wire.PathBreak, seen, http.StatusConflict)
	r.post(wire.PathRenew, wire.Renew{Lease: new(lease(second)), TTL: long}, http.StatusOK)
	seen.OwnerDigest = driver.OwnerDigest("a")
	r.post(wire.PathBreak, seen, http.StatusNoContent)
	r.post(wire.PathRenew, wire.Renew{Lease: new(lease(second)), TTL: long}, http.StatusGone)
}

// TestReservation reserves a lock at one replica, and takes it over and hands it back at another
// one, without knowing its owner. Other holds are left alone.
func TestReservation(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	reserve := wire.Acquire{Name: "db", Owner: "ops", Reserve: true, Label: "maintenance"}
	g := r1.acquire(reserve)
	if got := wire.Duration(g.TTL); got != longestReservation {
		t.Errorf("a reservation without an end lasts %v, want %v", got, longestReservation)
	}
	wantHolder := func(label string) {
		t.Helper()
		for _, r := range []*replica{r1, r2} {
			var l wire.Lock
			if err := json.Unmarshal([]byte(r.get(wire.PathLock+"?name=db").text), &l); err != nil {
				t.Fatal(err)
			}
			if len(l.Holders) != 1 || !l.Holders[0].Reserved || l.Holders[0].Label != label {
				t.Errorf("the holders are %+v, want a reservation for %q", l.Holders, label)
			}
		}
		if st := status(t, store, "db"); !st.Holders[0].Holder.IsReserved() {
			t.Errorf("in the store, the holder is %+v, want one that is reserved", st.Holders[0])
		}
	}
	wantHolder("maintenance")
	again := r2.acquire(reserve)
	if again.Token != g.Token {
		t.Errorf("who reserves a lock again gets token %d, want that of the first reservation, %d", again.Token, g.Token)
	}
	r2.post(wire.PathAcquire, msg("db", "ops"), http.StatusLocked) // as a hold of a process
	r2.post(wire.PathLabel, wire.Label{Lease: lease(g), Label: "indexes", TTL: long}, http.StatusNoContent)
	wantHolder("indexes")
	takeOver := wire.Label{Lease: wire.Lease{Name: "db", Token: g.Token}, Reserved: true, Label: "bob's"}
	r2.post(wire.PathLabel, takeOver, http.StatusNoContent)
	wantHolder("bob's")
	takeOver.Token++
	r2.post(wire.PathLabel, takeOver, http.StatusConflict)
	handBack := wire.Break{Name: "db", Token: g.Token, Reserved: true, Reason: "it is done", OwnerDigest: driver.OwnerDigest("b")}
	r2.post(wire.PathBreak, handBack, http.StatusConflict)
	handBack.OwnerDigest = driver.OwnerDigest("ops")
	r2.post(wire.PathBreak, handBack, http.StatusNoContent)
	r1.post(wire.PathBreak, handBack, http.StatusConflict)
	r1.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusGone)

	held := r1.acquire(msg("db", "worker"))
	handBack.Token, handBack.OwnerDigest, takeOver.Token = held.Token, "", held.Token
	r2.post(wire.PathBreak, handBack, http.StatusConflict)
	r2.post(wire.PathLabel, takeOver, http.StatusConflict)
	r1.release(held)

	reserve.TTL = long
	timed := r1.acquire(reserve)
	if timed.TTL != long {
		t.Errorf("ttl_ms = %d, want the one that was asked for, %d", timed.TTL, long)
	}
	r2.release(timed)
}

// limited is a store with the least TTL of a second, and no lock for longer than max.
type limited struct {
	*memlock.Driver
	max time.Duration // 0: without end
}

func (l limited) Info() driver.Info {
	info := l.Driver.Info()
	info.MinTTL, info.MaxTTL = time.Second, l.max
	return info
}

// TestTTLRange checks what is said of a TTL that the store does not take.
func TestTTLRange(t *testing.T) {
	for _, tt := range []struct {
		max  time.Duration
		want string
	}{
		{0, "ttl_ms: this store takes 1000 or more"},
		{time.Hour, "ttl_ms: this store takes from 1000 to 3600000"},
	} {
		r := startReplicaOf(t, limited{memlock.New(), tt.max}, Options{})
		g := r.acquire(msg("held", "a"))
		for path, message := range map[string]any{
			wire.PathAcquire: wire.Acquire{Name: "x", TTL: 1},
			wire.PathRenew:   wire.Renew{Lease: new(lease(g)), TTL: 1},
			wire.PathLabel:   wire.Label{Lease: lease(g), TTL: 1},
		} {
			if a := r.post(path, message, http.StatusBadRequest); a.problem.Detail != tt.want {
				t.Errorf("%s: detail = %q, want %q", path, a.problem.Detail, tt.want)
			}
		}
	}
}

// TestTTLRangeOfBatch renews two holds, one of them for longer than the store takes.
func TestTTLRangeOfBatch(t *testing.T) {
	r := startReplicaOf(t, limited{memlock.New(), time.Hour}, Options{})
	batch := wire.Renew{Leases: []wire.Renewable{
		{Lease: lease(r.acquire(msg("one", "a"))), TTL: 3_600_001},
		{Lease: lease(r.acquire(msg("two", "a"))), TTL: 3_600_000},
	}}
	var got wire.RenewedAll
	text := r.post(wire.PathRenew, batch, http.StatusOK).text
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Results[0].Type == "" || got.Results[1].Type != "" {
		t.Errorf("the answer is %s, %v, want that only the first hold was not renewed", text, err)
	}
}

// TestReservationsWithAnEnd demands an end where a store would set one by itself.
func TestReservationsWithAnEnd(t *testing.T) {
	r := startReplicaOf(t, limited{memlock.New(), time.Hour}, Options{})
	reserve := wire.Acquire{Name: "db", Reserve: true, Label: "maintenance"}
	a := r.post(wire.PathAcquire, reserve, http.StatusBadRequest)
	if !strings.Contains(a.text, "at most 3600000") {
		t.Errorf("the answer %s does not say how long a reservation may be", a.text)
	}
	reserve.TTL = 3_600_000
	r.release(r.acquire(reserve))
}

// TestReservationsRefused refuses what can be no reservation, and labels that look like one.
func TestReservationsRefused(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	g := r.acquire(msg("held", "a"))
	for what, m := range map[string]struct {
		path    string
		message any
	}{
		"label":   {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true}},
		"wait":    {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true, Label: "x", Wait: 1}},
		"host":    {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true, Label: "x", Host: "h"}},
		"begin":   {wire.PathAcquire, wire.Acquire{Name: "a", Label: driver.ReservedLabel + "x"}},
		"relabel": {wire.PathLabel, wire.Label{Lease: lease(g), Label: driver.ReservedLabel + "x", TTL: long}},
		"waits":   {wire.PathAcquire, wire.Acquire{Name: "a", Label: waitingLabel + " " + driver.ReservedLabel + "x"}},
		"rewait":  {wire.PathLabel, wire.Label{Lease: lease(g), Label: waitingLabel, TTL: long}},
		"note":    {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true, Label: waitingLabel + " x"}},
		"owner":   {wire.PathLabel, wire.Label{Lease: lease(g), Label: "x", Reserved: true}},
		"end":     {wire.PathLabel, wire.Label{Lease: wire.Lease{Name: "held", Token: g.Token}, Label: "x", Reserved: true, TTL: long}},
		"reason":  {wire.PathBreak, wire.Break{Name: "a", Token: 1, Reserved: true}},
	} {
		t.Run(what, func(t *testing.T) { r.post(m.path, m.message, http.StatusBadRequest) })
	}
}

// TestReplicaServesOthers renews, labels and releases at a replica what another one granted.
func TestReplicaServesOthers(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	const holds = 200
	var batch wire.Renew
	var all []wire.Granted
	for i := range holds {
		m := msg(fmt.Sprint("job", i), "a")
		m.TTL = 5000
		g := r1.acquire(m)
		all = append(all, g)
		batch.Leases = append(batch.Leases, wire.Renewable{Lease: lease(g), TTL: long})
	}
	r1.release(all[7])
	for _, r := range []*replica{r2, r2, r1} {
		var got wire.RenewedAll
		if err := json.Unmarshal([]byte(r.post(wire.PathRenew, batch, http.StatusOK).text), &got); err != nil || len(got.Results) != holds {
			t.Fatalf("%d results, %v", len(got.Results), err)
		}
		for i, one := range got.Results {
			if lost := one.Type != ""; lost != (i == 7) || !lost && one.TTL != long {
				t.Errorf("result %d = %+v", i, one)
			}
		}
	}
	if st := status(t, store, "job1"); len(st.Holders) != 1 || st.Holders[0].Left < 30*time.Second {
		t.Errorf("after a renewal the lock is %+v", st)
	}
	r2.post(wire.PathLabel, wire.Label{Lease: lease(all[1]), Label: "half", TTL: long}, http.StatusNoContent)
	if st := status(t, store, "job1"); len(st.Holders) != 1 || st.Holders[0].Holder.Label != "half" {
		t.Errorf("after a new label the lock is %+v", st)
	}
	r2.release(all[1])
	r1.post(wire.PathRenew, wire.Renew{Lease: new(lease(all[1])), TTL: long}, http.StatusGone)
	if st := status(t, store, "job1"); len(st.Holders) != 0 {
		t.Errorf("after a release the lock is %+v", st)
	}
}

// An interrupted driver calls a func after each look at the store.
type interrupted struct {
	*memlock.Driver
	after func()
}

func (d interrupted) Status(ctx context.Context, name string) (driver.Status, error) {
	st, err := d.Driver.Status(ctx, name)
	d.after()
	return st, err
}

// TestLabelDuringRenewal renews a hold at one replica while another one labels it, which has seen
// the hold before it was renewed. The label must not take from it what the renewal gave.
func TestLabelDuringRenewal(t *testing.T) {
	store := new(memlock.Store)
	r1 := startReplica(t, store, Options{})
	m := msg("job", "a")
	m.TTL = long / 2
	g := r1.acquire(m)
	var end driver.Instant
	r2 := startReplicaOf(t, interrupted{store.Open(), func() {
		end = driver.Now().Add(wire.Duration(long))
		r1.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusOK)
	}}, Options{})
	r2.post(wire.PathLabel, wire.Label{Lease: lease(g), Label: "half", TTL: long}, http.StatusNoContent)
	if st := status(t, store, "job"); st.Holders[0].Holder.Label != "half" || driver.Now().Add(st.Holders[0].Left).Before(end) {
		t.Errorf("the hold is %+v, want it labelled, and to last %v more", st.Holders[0], end.Left(driver.Now()))
	}
}

// TestMinHoldElsewhere releases a hold at another replica before its MinHold is over.
func TestMinHoldElsewhere(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	m := msg("job", "a")
	m.MinHold = long
	g := r1.acquire(m)
	r2.post(wire.PathRelease, wire.Release{Lease: lease(g), MinHold: long}, http.StatusNoContent)
	r2.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusGone)
	r1.post(wire.PathAcquire, msg("job", "b"), http.StatusLocked)
}

// TestAuthorizer checks what an Authorizer is asked, and that it is heeded.
func TestAuthorizer(t *testing.T) {
	store, access := new(memlock.Store), &testAccess{prefix: "team/"}
	r := startReplica(t, store, Options{Access: access})
	var actions []Action
	var outcomes []Outcome
	var refuse error
	access.begin = func(a Action) (func(Outcome) error, error) {
		actions = append(actions, a)
		return func(o Outcome) error { outcomes = append(outcomes, o); return refuse }, nil
	}
	g := r.acquire(msg("job", "a"))
	want := Action{Verb: VerbAcquire, Op: OpAcquire, Name: "job", Owner: "a", TTL: time.Minute, PlaceTimeout: 10 * time.Second}
	if len(actions) != 1 || actions[0] != want || len(outcomes) != 1 || outcomes[0].Err != nil || outcomes[0].Token != g.Token {
		t.Errorf("actions %+v, outcomes %+v; want %+v", actions, outcomes, want)
	}
	if st := status(t, store, "team/job"); len(st.Holders) != 1 {
		t.Errorf("the lock in the store is %+v", st)
	}
	if got := r.get(wire.PathLocks); !strings.Contains(got.text, `"name":"job"`) {
		t.Errorf("the list is %s", got.text)
	}
	refuse = &Refusal{Status: http.StatusTooManyRequests, Type: wire.ProblemQuota, Detail: "no more", RetryAfter: 3 * time.Second}
	got := r.post(wire.PathAcquire, msg("other", "a"), http.StatusTooManyRequests)
	if got.header.Get("Retry-After") != "3" || got.problem.Detail != "no more" {
		t.Errorf("the refusal is %+v", got)
	}
	if st := status(t, store, "team/other"); len(st.Holders) != 0 {
		t.Errorf("a hold that was refused afterwards stays: %+v", st)
	}
	access.begin = func(Action) (func(Outcome) error, error) { return nil, errors.New("secret of the authorizer") }
	if got := r.post(wire.PathRelease, wire.Release{Lease: lease(g)}, http.StatusInternalServerError); strings.Contains(got.text, "secret") {
		t.Errorf("the answer is %s", got.text)
	}
}

// TestSessionsAreRefused checks that a store whose leases end with a session is refused.
func TestSessionsAreRefused(t *testing.T) {
	if _, err := New(sessions{memlock.New()}, Options{}); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "end with the session") {
		t.Errorf("New = %v, want ErrInvalid", err)
	}
}

// sessions is a driver whose leases end with a session.
type sessions struct{ *memlock.Driver }

func (s sessions) Info() driver.Info {
	info := s.Driver.Info()
	info.Tenure = driver.TenureSession
	return info
}

// TestLeasesAreForgotten takes many locks for years, and ends the holds here and elsewhere. The
// replica must not remember them for years.
func TestLeasesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		s := newService(t, store, Options{})
		send := func(path string, message any, want int) []byte {
			body, err := json.Marshal(message)
			if err != nil {
				t.Fatal(err)
			}
			w := post(t.Context(), s, path, string(body))
			if w.Code != want {
				t.Fatalf("%s: %d %s, want %d", path, w.Code, w.Body, want)
			}
			return w.Body.Bytes()
		}
		const n = 2000
		for i := range n {
			var g wire.Granted
			text := send(wire.PathAcquire, wire.Acquire{Name: fmt.Sprint("job ", i), Reserve: true, Label: "x"}, http.StatusOK)
			if err := json.Unmarshal(text, &g); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				send(wire.PathRelease, wire.Release{Lease: lease(g)}, http.StatusNoContent)
			} else if err := store.Break(t.Context(), g.Name, g.Owner, g.Token); err != nil { // at another replica
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		s.leases.mu.Lock()
		got := len(s.leases.all)
		s.leases.mu.Unlock()
		if got >= n {
			t.Errorf("%d holds have ended in %v, and the replica remembers %d", n, n*10*time.Second, got)
		}
	})
}

// TestPages reads a list in pages.
func TestPages(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	for i := range 25 {
		r.acquire(msg(fmt.Sprintf("job%02d", i), "a"))
	}
	r.acquire(msg("other", "a"))
	var names []string
	after := ""
	for range 3 {
		var page wire.Page
		if err := json.Unmarshal([]byte(r.get(wire.PathLocks+"?prefix=job&limit=10&after="+after).text), &page); err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Locks {
			names = append(names, l.Name)
		}
		after = page.After
	}
	if len(names) != 25 || names[24] != "job24" || after != "" {
		t.Errorf("the pages have %q, and then %q", names, after)
	}
	if got := strings.Count(r.lines("job").text, "\n"); got != 25 {
		t.Errorf("the list has %d lines", got)
	}
	if got := r.get(wire.PathLocks + "?state=waiting").text; got != "{\"locks\":[]}\n" {
		t.Errorf("the list of those waited for is %s", got)
	}
}
