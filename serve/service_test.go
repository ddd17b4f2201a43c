package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// TestProblems sends requests that can't be served. Each is answered with its problem, and no lock
// is taken.
func TestProblems(t *testing.T) {
	store := new(memlock.Store)
	r := startReplica(t, store, Options{})
	tests := []struct {
		name, method, path, contentType, body string
		kind                                  string
	}{
		{"NoJSON", "POST", wire.PathAcquire, wire.TypeJSON, "name=x", wire.ProblemInvalid},
		{"Empty", "POST", wire.PathAcquire, wire.TypeJSON, "", wire.ProblemInvalid},
		{"Early", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x"`, wire.ProblemInvalid},
		{"Two", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x"}{"name":"y"}`, wire.ProblemInvalid},
		{"UnknownField", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","ttl":5}`, wire.ProblemInvalid},
		{"FieldTwice", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","slots":1,"name":"y"}`, wire.ProblemInvalid},
		{"FieldTwiceInBatch", "POST", wire.PathRenew, wire.TypeJSON, `{"leases":[{"name":"x","id":"o-------------------","name":"y"}]}`, wire.ProblemInvalid},
		{"CaseOfField", "POST", wire.PathAcquire, wire.TypeJSON, `{"NAME":"x"}`, wire.ProblemInvalid},
		{"CaseOfSecondField", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","Name":"y"}`, wire.ProblemInvalid},
		{"KelvinInField", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","Kind":""}`, wire.ProblemInvalid},
		{"EscapeInField", "POST", wire.PathAcquire, wire.TypeJSON, `{"na\u006de":"x"}`, wire.ProblemInvalid},
		{"CaseInBatch", "POST", wire.PathRenew, wire.TypeJSON, `{"leases":[{"name":"\"x\\" , "ID" :"o-------------------"}]}`, wire.ProblemInvalid},
		{"WrongType", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":5}`, wire.ProblemInvalid},
		{"NotUTF8", "POST", wire.PathAcquire, wire.TypeJSON, "{\"name\":\"\xff\"}", wire.ProblemInvalid},
		{"NoName", "POST", wire.PathAcquire, wire.TypeJSON, `{}`, wire.ProblemInvalid},
		{"NUL", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"a\u0000b"}`, wire.ProblemInvalid},
		{"LongName", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"` + strings.Repeat("n", 513) + `"}`, wire.ProblemInvalid},
		{"LongID", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","id":"` + strings.Repeat("o", 129) + `"}`, wire.ProblemInvalid},
		{"ShortID", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","id":"` + strings.Repeat("o", 19) + `"}`, wire.ProblemInvalid},
		{"CharactersOfID", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","id":"` + strings.Repeat("o", 19) + `~"}`, wire.ProblemInvalid},
		{"Owner", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","owner":"` + strings.Repeat("o", 20) + `"}`, wire.ProblemInvalid},
		{"LongLabel", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","label":"` + strings.Repeat("l", 1025) + `"}`, wire.ProblemInvalid},
		{"Kind", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","kind":"reserved"}`, wire.ProblemInvalid},
		{"PID", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","pid":-1}`, wire.ProblemInvalid},
		{"TTL", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","ttl_ms":-1}`, wire.ProblemInvalid},
		{"Slots", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","slots":-1}`, wire.ProblemInvalid},
		{"ManySlots", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","slots":2147483648}`, wire.ProblemInvalid},
		{"PrefixNotUTF8", "GET", wire.PathLocks + "?prefix=%ff", "", "", wire.ProblemInvalid},
		{"PrefixNUL", "GET", wire.PathLocks + "?prefix=a%00b", "", "", wire.ProblemInvalid},
		{"Kinds", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","slots":1,"shared":true}`, wire.ProblemInvalid},
		{"NoID", "POST", wire.PathRenew, wire.TypeJSON, `{"name":"x"}`, wire.ProblemInvalid},
		{"BothForms", "POST", wire.PathRenew, wire.TypeJSON, `{"name":"x","leases":[{"name":"x","id":"o-------------------"}]}`, wire.ProblemInvalid},
		{"NoReason", "POST", wire.PathBreak, wire.TypeJSON, `{"name":"x","token":1}`, wire.ProblemInvalid},
		{"NoResource", "POST", wire.PathFence, wire.TypeJSON, `{"id":"o-------------------","token":1}`, wire.ProblemInvalid},
		{"FenceNoID", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","token":1}`, wire.ProblemInvalid},
		{"FenceNoToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","id":"o-------------------"}`, wire.ProblemInvalid},
		{"NoSuchToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","id":"o-------------------","token":9000000000000000}`, wire.ProblemInvalid},
		{"HugeToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","id":"o-------------------","token":18446744073709551615}`, wire.ProblemInvalid},
		{"NegativeToken", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","id":"o-------------------","token":-1}`, wire.ProblemInvalid},
		{"NoGuard", "POST", wire.PathFence, wire.TypeJSON, `{"resource":"x","id":"o-------------------","token":1}`, wire.ProblemPath},
		{"HalfCharacter", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"\uD83D\ud83d"}`, wire.ProblemInvalid},
		{"Form", "POST", wire.PathAcquire, "application/x-www-form-urlencoded", `{"name":"x"}`, wire.ProblemContentType},
		{"NoContentType", "POST", wire.PathAcquire, "", `{"name":"x"}`, wire.ProblemContentType},
		{"Huge", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"` + strings.Repeat("n", maxBody) + `"}`, wire.ProblemTooLarge},
		{"Path", "GET", "/v1/nothing", "", "", wire.ProblemPath},
		{"Traversal", "GET", "/v1/../v1/store", "", "", wire.ProblemPath},
		{"Slashes", "GET", "//v1/store", "", "", wire.ProblemPath},
		{"Escaped", "GET", "/v1/%2e%2e/v1/store", "", "", wire.ProblemPath},
		{"EscapedLetter", "GET", "/v1/s%74ore", "", "", wire.ProblemPath}, // a rule of a proxy does not see it
		{"GetAcquire", "GET", wire.PathAcquire, "", "", wire.ProblemMethod},
		{"PostLock", "POST", wire.PathLock, wire.TypeJSON, "{}", wire.ProblemMethod},
		{"Tokens", "POST", wire.PathAcquire, wire.TypeJSON, `{"name":"x","tokens":129}`, wire.ProblemInvalid},
		{"Query", "GET", wire.PathLock + "?nme=x", "", "", wire.ProblemInvalid},
		{"QueryTwice", "GET", wire.PathLock + "?name=x&name=y", "", "", wire.ProblemInvalid},
		{"QueryEscape", "GET", wire.PathLock + "?name=%zz", "", "", wire.ProblemInvalid},
		{"Limit", "GET", wire.PathAudit + "?limit=0", "", "", wire.ProblemInvalid},
		{"Lost", "POST", wire.PathRenew, wire.TypeJSON, `{"name":"\":\"X\\" , "id":"o-------------------"}`, wire.ProblemLost},
		{"Changed", "POST", wire.PathBreak, wire.TypeJSON, `{"name":"x","token":1,"reason":"r"}`, wire.ProblemLost},
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
	holder.Process = wire.Process{Host: "web-1", PID: 4711, Label: "release 7", Kind: wire.KindDetached}
	r.acquire(holder)
	got := r.post(wire.PathAcquire, msg("job", "b"), http.StatusLocked)
	if len(got.problem.Holders) != 1 || got.problem.Holders[0].Process != (holder.Process) ||
		got.header.Get("Retry-After") != "1" {
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
	const local, here = localAddr("127.0.0.1:7420"), "127.0.0.1:999"
	with := func(header, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(header, value) }
	}
	for _, tt := range []struct {
		name, remote, host string
		local              localAddr
		change             func(*http.Request)
		want               int
	}{
		{"Loopback", here, "localhost:7420", local, nil, http.StatusOK},
		{"IPv6", "[::1]:999", "[::1]:7420", "[::1]:7420", nil, http.StatusOK},
		{"OtherHost", "192.0.2.1:999", "localhost:7420", local, nil, http.StatusForbidden},
		{"OtherAddress", here, "localhost:7420", "192.0.2.2:7420", nil, http.StatusForbidden},
		{"OtherName", here, "evil.example:7420", local, nil, http.StatusForbidden},
		{"OtherSite", here, "localhost:7420", local, with("Origin", "https://evil.example"), http.StatusForbidden},
		{"XForwardedFor", here, "localhost:7420", local, with("X-Forwarded-For", "203.0.113.9"), http.StatusForbidden},
		{"XRealIP", here, "localhost:7420", local, with("X-Real-IP", "203.0.113.9"), http.StatusForbidden},
		{"Forwarded", here, "localhost:7420", local, with("Forwarded", "for=203.0.113.9"), http.StatusForbidden},
		{"Via", here, "localhost:7420", local, with("Via", "1.1 proxy"), http.StatusForbidden},
		{"Nginx", here, "127.0.0.1:7420", local, func(r *http.Request) { r.Proto, r.ProtoMinor = "HTTP/1.0", 0 }, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPost, wire.PathAcquire, strings.NewReader(`{"name":"x","id":"o-------------------"}`))
			req.Header.Set("Content-Type", wire.TypeJSON)
			req.RemoteAddr, req.Host = tt.remote, tt.host
			if tt.change != nil {
				tt.change(req)
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
	begin  func(Action) (func(Outcome), error)
}

func (a *testAccess) Authenticate(r *http.Request) (*Principal, error) {
	if r.Header.Get("Origin") != "" {
		return nil, wire.NewProblem(wire.ProblemMissing, "", 0)
	}
	return &Principal{Name: "test", Prefix: a.prefix}, nil
}

func (a *testAccess) Begin(_ context.Context, _ *Principal, action Action) (func(Outcome), error) {
	if a.begin == nil {
		return nil, nil
	}
	return a.begin(action)
}

func (a *testAccess) May(_ *Principal, v Verb, _ string) bool { return v != VerbAdmin || a.admin }

// TestIDsAreHidden checks that no answer has the id of somebody else, but that about one lock to an
// administrator.
func TestIDsAreHidden(t *testing.T) {
	for _, admin := range []bool{false, true} {
		t.Run(fmt.Sprint("Admin=", admin), func(t *testing.T) {
			r := startReplica(t, new(memlock.Store), Options{Access: &testAccess{admin: admin}})
			r.acquire(msg("job", "secret-holder"))
			for _, id := range []string{"secret-waiter-1", "secret-waiter-2"} {
				r.queue(msg("job", id)) // one waits in the store, and one in the replica
			}
			if a := r.get(wire.PathLock + "?name=job"); strings.Count(a.text, "secret-") != map[bool]int{true: 3}[admin] {
				t.Errorf("the answer about one lock is %s", a.text)
			}
			for i, a := range []*answer{
				r.get(wire.PathLocks),
				r.post(wire.PathAcquire, msg("job", "me"), http.StatusLocked),
			} {
				if strings.Contains(a.text, "secret") {
					t.Errorf("answer %d shows an id: %s", i, a.text)
				}
			}
		})
	}
}

// TestIDIsMadeUp sends a request without an id. The one that the service makes up is in the
// answers.
func TestIDIsMadeUp(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	g := r.acquire(wire.Acquire{Name: "job"})
	var queued wire.Queued
	if err := json.Unmarshal([]byte(r.post(wire.PathAcquire, wire.Acquire{Name: "job", Wait: 1}, http.StatusAccepted).text), &queued); err != nil {
		t.Fatal(err)
	}
	r.release(g)
	r.release(r.acquire(wire.Acquire{Name: "job", ID: queued.ID, Wait: long}))
}

// TestOtherIDs checks that only who knows the id of a hold can change it.
func TestOtherIDs(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	g := r1.acquire(msg("job", "a"))
	for _, r := range []*replica{r1, r2} {
		for name, l := range map[string]wire.Lease{
			"another id":     {Name: "job", ID: longID("b")},
			"another suffix": {Name: "job", ID: newGrantID(longID("a")).String()}, "another lock": {Name: "jo", ID: g.ID},
		} {
			t.Run(name, func(t *testing.T) {
				r.post(wire.PathRenew, wire.Renew{Lease: new(l), TTL: long}, http.StatusGone)
				r.post(wire.PathLabel, wire.Label{Lease: l, Process: wire.Process{Label: "x"}}, http.StatusGone)
				r.post(wire.PathRelease, l, http.StatusGone)
			})
		}
	}
	if st := status(t, store, "job"); len(st.Holders) != 1 || st.Holders[0].Holder.Label != "" {
		t.Errorf("the lock is %+v, want the hold as it was", st)
	}
	r2.post(wire.PathRenew, wire.Renew{Lease: &wire.Lease{Name: "job", ID: longID("a")}, TTL: long}, http.StatusOK)
	r1.release(g)
}

// TestLateRequests sends requests about a hold that has ended, at the replica that has granted it
// and at another one. They neither revive it, nor touch the next hold.
func TestLateRequests(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	old := r1.acquire(msg("job", "a"))
	r2.release(old)
	late := func() {
		t.Helper()
		r2.post(wire.PathAcquire, msg("job", "a"), http.StatusGone) // a proxy has sent it again
		for _, r := range []*replica{r1, r2} {
			for _, id := range []string{old.ID, longID("a")} {
				l := wire.Lease{Name: "job", ID: id}
				r.post(wire.PathRenew, wire.Renew{Lease: new(l), TTL: long}, http.StatusGone)
				r.post(wire.PathLabel, wire.Label{Lease: l, Process: wire.Process{Label: "late"}}, http.StatusGone)
				r.post(wire.PathRelease, l, http.StatusGone)
				r.post(wire.PathBreak, wire.Break{Name: "job", ID: id, Reason: "late"}, http.StatusGone)
			}
		}
	}
	late()
	if st := status(t, store, "job"); !isFree(st) {
		t.Errorf("after late requests the lock is %+v, want it free", st)
	}
	next := r1.acquire(msg("job", "b"))
	late()
	if st := status(t, store, "job"); len(st.Holders) != 1 || st.Holders[0].Token != next.Token || st.Holders[0].Holder.Label != "" {
		t.Errorf("after late requests the lock is %+v, want the next hold as it was", st)
	}
}

// onlyByID is a store in which a replica must not look for a hold, and acquires nothing.
type onlyByID struct {
	*memlock.Driver
	t *testing.T
}

func (d onlyByID) Acquire(context.Context, driver.Request) (driver.Lease, error) {
	d.t.Error("a request about a hold acquires the lock")
	return nil, driver.ErrHeld
}

func (d onlyByID) Status(ctx context.Context, name string) (driver.Status, error) {
	if name == "job" { // and not to see whether the store answers
		d.t.Error("a request about a hold reads the status of the lock first")
	}
	return d.Driver.Status(ctx, name)
}

// TestOneRequest renews, labels and releases at a replica what another one has granted. Each is one
// request to the store, by the id: a store whose nodes disagree on the token of a hold can't end
// it.
func TestOneRequest(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplicaOf(t, onlyByID{store.Open(), t}, Options{})
	g := r1.acquire(msg("job", "a"))
	r2.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusOK)
	r2.post(wire.PathLabel, wire.Label{Lease: lease(g), Process: wire.Process{Label: "half"}}, http.StatusNoContent)
	if st := status(t, store, "job"); len(st.Holders) != 1 || st.Holders[0].Token != g.Token || st.Holders[0].Holder.Label != "half" {
		t.Errorf("the lock is %+v, want the hold with the token %d and the new label", st, g.Token)
	}
	r2.release(g)
}

// TestBreak ends only the hold that was seen.
func TestBreak(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	first := r.acquire(msg("job", "a"))
	r.release(first)
	second := r.acquire(msg("job", "b"))
	seen := wire.Break{Name: "job", Token: first.Token, Reason: "it hangs"}
	r.post(wire.PathBreak, seen, http.StatusGone)
	r.post(wire.PathRenew, wire.Renew{Lease: new(lease(second)), TTL: long}, http.StatusOK)
	seen.Token = second.Token
	r.post(wire.PathBreak, seen, http.StatusNoContent)
	r.post(wire.PathRenew, wire.Renew{Lease: new(lease(second)), TTL: long}, http.StatusGone)
}

// TestBreakOfKept ends by force what MinHold keeps after a release at another replica.
func TestBreakOfKept(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	m := msg("job", "a")
	m.MinHold = long
	g := r1.acquire(m)
	r2.release(g)
	r2.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusGone)
	r1.post(wire.PathAcquire, msg("job", "b"), http.StatusLocked)
	r1.post(wire.PathBreak, wire.Break{Name: "job", Token: g.Token, Reason: "it is needed"}, http.StatusNoContent)
	r1.acquire(msg("job", "b"))
}

// TestReservation reserves a lock at one replica, and takes it over and hands it back at another
// one, without knowing its id. Other holds are left alone.
func TestReservation(t *testing.T) {
	store := new(memlock.Store)
	r1, r2 := startReplica(t, store, Options{}), startReplica(t, store, Options{})
	reserve := wire.Acquire{Name: "db", ID: longID("ops"), Reserve: true, Process: wire.Process{Label: "maintenance"}}
	g := r1.acquire(reserve)
	if got := wire.Duration(g.TTL); got != driver.LongestTTL {
		t.Errorf("a reservation without an end lasts %v, want %v", got, driver.LongestTTL)
	}
	wantHolder := func(label string) {
		t.Helper()
		for _, r := range []*replica{r1, r2} {
			var l wire.Lock
			if err := json.Unmarshal([]byte(r.get(wire.PathLock+"?name=db").text), &l); err != nil {
				t.Fatal(err)
			}
			if len(l.Holders) != 1 || l.Holders[0].Kind != "reserved" || l.Holders[0].Label != label {
				t.Errorf("the holders are %+v, want a reservation for %q", l.Holders, label)
			}
		}
		if st := status(t, store, "db"); !isReserved(st.Holders[0].Holder) {
			t.Errorf("in the store, the holder is %+v, want one that is reserved", st.Holders[0])
		}
	}
	wantHolder("maintenance")
	again := r2.acquire(reserve)
	if again.Token != g.Token {
		t.Errorf("who reserves a lock again gets token %d, want that of the first reservation, %d", again.Token, g.Token)
	}
	r2.post(wire.PathAcquire, msg("db", "ops"), http.StatusLocked) // as a hold of a process
	takeOver := wire.Label{Lease: wire.Lease{Name: "db"}, Token: g.Token, Reserved: true, Process: wire.Process{Label: "bob's"}}
	r2.post(wire.PathLabel, takeOver, http.StatusNoContent)
	wantHolder("bob's")
	takeOver.Token++
	r2.post(wire.PathLabel, takeOver, http.StatusGone)
	handBack := wire.Break{Name: "db", Token: g.Token, Reserved: true, Reason: "it is done"}
	r2.post(wire.PathBreak, handBack, http.StatusNoContent)
	r1.post(wire.PathBreak, handBack, http.StatusGone)
	r1.post(wire.PathRenew, wire.Renew{Lease: new(lease(g)), TTL: long}, http.StatusGone)

	held := r1.acquire(msg("db", "worker"))
	handBack.Token, takeOver.Token = held.Token, held.Token
	r2.post(wire.PathBreak, handBack, http.StatusGone)
	r2.post(wire.PathLabel, takeOver, http.StatusGone)
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
		{0, "ttl_ms: this store takes from 1000 to 31622400000"},
		{time.Hour, "ttl_ms: this store takes from 1000 to 3600000"},
	} {
		r := startReplicaOf(t, limited{memlock.New(), tt.max}, Options{})
		g := r.acquire(msg("held", "a"))
		for _, ttl := range []int64{1, math.MaxInt64} {
			for path, message := range map[string]any{
				wire.PathAcquire: wire.Acquire{Name: "x", TTL: ttl},
				wire.PathRenew:   wire.Renew{Lease: new(lease(g)), TTL: ttl},
			} {
				if a := r.post(path, message, http.StatusBadRequest); a.problem.Detail != tt.want {
					t.Errorf("%s: detail = %q, want %q", path, a.problem.Detail, tt.want)
				}
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
	reserve := wire.Acquire{Name: "db", Reserve: true, Process: wire.Process{Label: "maintenance"}}
	a := r.post(wire.PathAcquire, reserve, http.StatusBadRequest)
	if !strings.Contains(a.text, "at most 3600000") {
		t.Errorf("the answer %s does not say how long a reservation may be", a.text)
	}
	reserve.TTL = 3_600_000
	r.release(r.acquire(reserve))
}

// TestReservationsRefused refuses what can be no reservation, and what would become one without the
// verb.
func TestReservationsRefused(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{})
	g, x := r.acquire(msg("held", "a")), wire.Process{Label: "x"}
	for what, m := range map[string]struct {
		path    string
		message any
	}{
		"label":   {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true}},
		"wait":    {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true, Process: x, Wait: 1}},
		"host":    {wire.PathAcquire, wire.Acquire{Name: "a", Reserve: true, Process: wire.Process{Label: "x", Host: "h"}}},
		"kind":    {wire.PathAcquire, wire.Acquire{Name: "a", Process: wire.Process{Label: "x", Kind: "reserved"}}},
		"pending": {wire.PathAcquire, wire.Acquire{Name: "a", Process: wire.Process{Label: "x", Kind: "pending"}}},
		"relabel": {wire.PathLabel, wire.Label{Lease: lease(g), Process: wire.Process{Label: "x", Kind: "reserved"}}},
		"id":      {wire.PathLabel, wire.Label{Lease: lease(g), Token: g.Token, Process: x, Reserved: true}},
		"token":   {wire.PathLabel, wire.Label{Lease: lease(g), Token: g.Token, Process: x}},
		"process": {wire.PathLabel, wire.Label{Lease: wire.Lease{Name: "held"}, Token: g.Token, Process: wire.Process{Label: "x", PID: 1}, Reserved: true}},
		"reason":  {wire.PathBreak, wire.Break{Name: "a", Token: 1, Reserved: true}},
	} {
		t.Run(what, func(t *testing.T) { r.post(m.path, m.message, http.StatusBadRequest) })
	}
}

// TestAuthorizer checks what an Authorizer is asked, and that it is heeded.
func TestAuthorizer(t *testing.T) {
	store, access := new(memlock.Store), &testAccess{prefix: "team/"}
	r := startReplica(t, store, Options{Access: access, Audit: func(*Principal, int) []wire.AuditEvent { return nil },
		Leaks: func(context.Context) ([]wire.Leak, error) { return nil, nil }})
	if got := r.get(wire.PathAudit).text; got != `{"events":[]}`+"\n" {
		t.Errorf("an empty audit log is %q", got)
	}
	var actions []Action
	var outcomes []Outcome
	access.begin = func(a Action) (func(Outcome), error) {
		actions = append(actions, a)
		return func(o Outcome) { outcomes = append(outcomes, o) }, nil
	}
	g := r.acquire(msg("job", "a"))
	want := Action{Verb: VerbAcquire, Op: OpAcquire, Name: "job", TTL: time.Minute}
	if len(actions) != 1 || actions[0] != want || len(outcomes) != 1 || outcomes[0].Err != nil ||
		outcomes[0].Token != g.Token {
		t.Errorf("actions %+v, outcomes %+v; want %+v", actions, outcomes, want)
	}
	if st := status(t, store, "team/job"); len(st.Holders) != 1 {
		t.Errorf("the lock in the store is %+v", st)
	}
	if got := r.get(wire.PathLocks); !strings.Contains(got.text, `"name":"job"`) {
		t.Errorf("the list is %s", got.text)
	}
	outcomes = nil
	r.post(wire.PathBreak, wire.Break{Name: "job", Token: g.Token + 1, Reason: "it hangs"}, http.StatusGone)
	if len(outcomes) != 1 || outcomes[0].Err == nil || outcomes[0].Token != g.Token+1 {
		t.Errorf("the outcomes of a break of no hold are %+v, want an error, and its token", outcomes)
	}
	access.begin = func(Action) (func(Outcome), error) {
		return nil, wire.NewProblem(wire.ProblemAudit, "no more", 3*time.Second)
	}
	got := r.post(wire.PathAcquire, msg("other", "a"), http.StatusServiceUnavailable)
	if got.header.Get("Retry-After") != "3" || got.problem.Detail != "no more" {
		t.Errorf("the refusal is %+v", got)
	}
	if st := status(t, store, "team/other"); len(st.Holders) != 0 {
		t.Errorf("an acquisition that was refused has a hold: %+v", st)
	}
	access.begin = func(Action) (func(Outcome), error) { return nil, errors.New("secret of the authorizer") }
	if got := r.post(wire.PathRelease, lease(g),
		http.StatusInternalServerError); strings.Contains(got.text, "secret") {
		t.Errorf("the answer is %s", got.text)
	}
	var begun atomic.Int32
	access.begin = func(Action) (func(Outcome), error) { // the rights end while the list is written
		if begun.Add(1)%2 == 0 {
			return nil, wire.NewProblem(wire.ProblemForbidden, "", 0)
		}
		return nil, nil
	}
	resp, err := http.Get(r.url + wire.PathLocks)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("a list without the rights to all of it looks complete")
	}
	r.check(r.send(t.Context(), http.MethodGet, wire.PathLeaks, "", ""), "leaks", http.StatusForbidden)
}

// TestGoneClientIsRecorded lets the clients of a break and of a reservation go, while the store
// works on it. The outcome is what the store did.
func TestGoneClientIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := fault.Plan{Rules: []fault.Rule{
			{Op: fault.Acquire, Call: 1, After: 2 * time.Second}, {Op: fault.Inspect, Call: 2, Before: 2 * time.Second},
		}}
		store := memlock.New()
		s := newService(t, fault.Wrap(store, plan), Options{})
		var outcomes []Outcome
		s.opts.Access.(*testAccess).begin = func(Action) (func(Outcome), error) {
			return func(o Outcome) { outcomes = append(outcomes, o) }, nil
		}
		send := func(path, message string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			post(ctx, s, path, message)
		}
		send(wire.PathAcquire, `{"name":"db","reserve":true,"label":"new disks"}`)
		st, err := store.Status(t.Context(), "db")
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("the lock is %+v, %v, want that it is reserved", st, err)
		}
		send(wire.PathBreak, fmt.Sprintf(`{"name":"db","id":%q,"reason":"it is done"}`, st.Holders[0].ID))
		if st, err = store.Status(t.Context(), "db"); err != nil || len(st.Holders) != 0 {
			t.Errorf("the lock is %+v, %v, want it free", st, err)
		}
		if len(outcomes) != 2 || outcomes[0].Err != nil || outcomes[0].Token == 0 || outcomes[1] != outcomes[0] {
			t.Errorf("the outcomes are %+v, want that the reservation and the break succeeded, with one token", outcomes)
		}
	})
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

// TestHalfCharacters checks which escapes of a body are refused.
func TestHalfCharacters(t *testing.T) {
	for text, want := range map[string]bool{
		`"\ud83d\ude00"`: true, `"\\ud800"`: true, `"\\\ud800"`: false, `"\u00e9\n\u0Dab"`: true, `"a\ud800b"`: false,
		`"\udc00"`: false, `"\ud800\u0041"`: false, `"\uD7ff\ue000"`: true, `"\ud83d\\ude00"`: false,
	} {
		if err := decode([]byte(text), new(string)); (err == nil) != want {
			t.Errorf("decode(%s) = %v, want that it is accepted: %v", text, err, want)
		}
	}
}
