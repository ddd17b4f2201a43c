package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// A transcript is a buffer that several goroutines write to.
type transcript struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// A testService is a lock service on a port, with a policy.
type testService struct {
	*Access
	t      *testing.T
	url    string
	certs  *Certificates // nil: without TLS
	client *http.Client
	audit  transcript
	log    transcript // of the server
}

// startService starts a service. The policy gets a token for each name in tokens in place of
// {name}. Without files it serves without TLS.
func startService(t *testing.T, policy string, tokens map[string]string, files *TLSFiles) *testService {
	t.Helper()
	for name := range tokens {
		token, line := NewToken()
		tokens[name] = token
		policy = strings.ReplaceAll(policy, "{"+name+"}", line)
	}
	store := memlock.New()
	s := &testService{t: t, client: &http.Client{}}
	file := filepath.Join(t.TempDir(), "policy.toml")
	writeFile(t, file, policy)
	var err error
	if files != nil {
		if s.certs, err = LoadCertificates(*files); err != nil {
			t.Fatal(err)
		}
	}
	s.Access, err = Load(file, s.certs, NewAuditLog(&s.audit))
	if err != nil {
		t.Fatal(err)
	}
	service, err := serve.New(store, serve.Options{Access: s.Access, Fence: new(fence.Memory)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: service, ErrorLog: log.New(&s.log, "", 0)}
	s.url = "http://" + listener.Addr().String()
	if files != nil {
		listener, s.url = tls.NewListener(listener, s.certs.Config()), "https://"+listener.Addr().String()
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = server.Close()
		if err := service.Drain(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("Drain = %v", err)
		}
		_ = store.Close()
	})
	return s
}

// An answer is what the service answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// decode decodes the body.
func (a answer) decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
}

// send sends a request with a token; message is its body, or nil.
func (s *testService) send(method, path, token string, message any, change ...func(*http.Request)) answer {
	s.t.Helper()
	var body []byte
	if message != nil {
		var err error
		if body, err = json.Marshal(message); err != nil {
			s.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if message != nil {
		r.Header.Set("Content-Type", wire.TypeJSON)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range change {
		f(r)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// acquire acquires a lock, which must be granted.
func (s *testService) acquire(token, name, id string) wire.Granted {
	s.t.Helper()
	a := s.send("POST", wire.PathAcquire, token, wire.Acquire{Name: name, ID: longID(id), TTL: 60_000})
	if a.status != http.StatusOK {
		s.t.Fatalf("acquire %q: %d %s", name, a.status, a.body)
	}
	var g wire.Granted
	a.decode(s.t, &g)
	return g
}

// TestServiceVerbs tries each operation with each verb, over HTTP. What is allowed may fail for
// other reasons.
func TestServiceVerbs(t *testing.T) {
	tokens, policy := map[string]string{"read": "", "acquire": "", "break": "", "reserve": "", "admin": ""}, ""
	for verb := range tokens {
		policy += fmt.Sprintf("[token.%s]\n{%s}\nverbs = [%q]\nprefixes = [\"app/\"]\n", verb, verb, verb)
	}
	s := startService(t, policy, tokens, nil)
	type operation struct {
		verb, path string
		message    any // nil: HEAD
	}
	operations := func(lock string) []operation {
		hold, x := wire.Lease{Name: lock, ID: longID("a")}, wire.Process{Label: "x"}
		return []operation{
			{"acquire", wire.PathAcquire, wire.Acquire{Name: lock}},
			{"acquire", wire.PathRenew, wire.Renew{Lease: &hold}},
			{"acquire", wire.PathLabel, wire.Label{Lease: hold, Process: x}},
			{"acquire", wire.PathWithdraw, wire.Lease{Name: lock, ID: hold.ID}},
			{"acquire", wire.PathRelease, hold},
			{"acquire", wire.PathFence, wire.Fence{Resource: lock, ID: hold.ID, Token: 1}},
			{"read", wire.PathLock + "?name=" + lock, nil},
			{"read", wire.PathLocks + "?prefix=" + lock, nil},
			{"read", wire.PathEvents + "?prefix=" + lock, nil},
			{"break", wire.PathBreak, wire.Break{Name: lock, Token: 1, Reason: "test"}},
			{"reserve", wire.PathAcquire, wire.Acquire{Name: lock, Reserve: true, Process: x}},
			{"reserve", wire.PathLabel, wire.Label{Lease: wire.Lease{Name: lock}, Token: 1, Reserved: true, Process: x}},
			{"reserve", wire.PathBreak, wire.Break{Name: lock, Token: 1, Reserved: true, Reason: "test"}},
			{"admin", wire.PathAudit, nil},
			{"read", wire.PathMetrics, nil},
			{"read", wire.PathLeaks, nil},
		}
	}
	others := operations("other")
	for i, op := range operations("app/x") {
		try := func(token string, op operation) answer {
			if op.message == nil {
				return s.send("HEAD", op.path, token, nil)
			}
			return s.send("POST", op.path, token, op.message)
		}
		for verb, token := range tokens {
			got := try(token, op)
			if isAllowed := got.status != http.StatusForbidden; isAllowed != (verb == op.verb) {
				t.Errorf("%s %+v with the verb %s: %d %s, want it allowed: %t", op.path, op.message, verb, got.status, got.body, verb == op.verb)
			}
			if other := others[i]; other.message != nil || other.path != op.path { // else it is about no lock
				if got := try(token, other); got.status != http.StatusForbidden {
					t.Errorf("%s %+v: %d %s, want 403", other.path, other.message, got.status, got.body)
				}
			}
		}
		for _, token := range []string{"", "x", tokens["read"] + "x"} {
			if got := try(token, op); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with the token %q: %d %s, want 401 with a challenge", op.path, token, got.status, got.body)
			}
		}
	}
}

// lock returns what a token sees of a lock.
func (s *testService) lock(token, name string) wire.Lock {
	s.t.Helper()
	var l wire.Lock
	a := s.send("GET", wire.PathLock+"?name="+name, token, nil)
	if a.status != http.StatusOK {
		s.t.Fatalf("get %q: %d %s", name, a.status, a.body)
	}
	a.decode(s.t, &l)
	return l
}

// TestServiceNamespaces checks that nobody reaches or sees a lock of another namespace.
func TestServiceNamespaces(t *testing.T) {
	tokens := map[string]string{"red": "", "blue": "", "all": ""}
	s := startService(t, `
[namespace.red]
[namespace.blue]
[token.red]
{red}
verbs = ["read", "acquire", "break"]
namespace = "red"
[token.blue]
{blue}
verbs = ["read", "acquire", "break"]
namespace = "blue"
[token.all]
{all}
verbs = ["read"]
prefixes = [""]
`, tokens, nil)
	red, blue := s.acquire(tokens["red"], "deploy", "a"), s.acquire(tokens["blue"], "deploy", "b")
	names := func(token, query string) []string {
		lines := json.NewDecoder(strings.NewReader(s.send("GET", wire.PathLocks+query, token, nil).body))
		var all []string
		for lines.More() {
			var l wire.Lock
			if err := lines.Decode(&l); err != nil {
				t.Fatal(err)
			}
			all = append(all, l.Name)
		}
		slices.Sort(all)
		return all
	}
	for _, tt := range []struct{ who, query, want string }{
		{"red", "", "[deploy]"}, {"blue", "", "[deploy]"}, {"all", "", "[blue/deploy red/deploy]"},
		{"red", "?prefix=blue/", "[]"}, {"red", "?prefix=red/", "[]"}, {"red", "?prefix=..", "[]"},
	} {
		if got := fmt.Sprint(names(tokens[tt.who], tt.query)); got != tt.want {
			t.Errorf("%s sees %s with %q, want %s", tt.who, got, tt.query, tt.want)
		}
	}
	// The id of another namespace's hold are of no use.
	got := s.send("POST", wire.PathRelease, tokens["red"], wire.Lease{Name: "deploy", ID: blue.ID})
	if got.status != http.StatusGone {
		t.Errorf("red releases the hold of blue: %d %s, want 410", got.status, got.body)
	}
	for _, name := range []string{"../blue/deploy", "blue/deploy", "/blue/deploy"} {
		got := s.send("POST", wire.PathBreak, tokens["red"], wire.Break{Name: name, Token: blue.Token, Reason: "x"})
		if got.status != http.StatusGone {
			t.Errorf("red breaks %s: %d %s, want 410: there is no such lock in its namespace", name, got.status, got.body)
		}
	}
	if n := len(s.lock(tokens["blue"], "deploy").Holders); n != 1 {
		t.Errorf("blue/deploy has %d holders, want 1", n)
	}
	if n := len(s.lock(tokens["red"], "deploy").Holders); n != 1 || red.Token == 0 {
		t.Errorf("red/deploy has %d holders, want 1", n)
	}
}

// TestServiceEvents checks that a stream of events shows one's own locks only, and ends once the
// rights have gone: a client that it tells nothing any more would think that nothing happens.
func TestServiceEvents(t *testing.T) {
	tokens := map[string]string{"red": "", "blue": "", "all": ""}
	s := startService(t, `
[namespace.red]
[namespace.blue]
[token.red]
{red}
verbs = ["read", "acquire"]
namespace = "red"
prefixes = ["of "]
[token.all]
{all}
verbs = ["read", "acquire"]
namespace = "red"
[token.blue]
{blue}
verbs = ["read", "acquire"]
namespace = "blue"
`, tokens, nil)
	listen := func(token string) *json.Decoder {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+wire.PathEvents, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return json.NewDecoder(resp.Body)
	}
	next := func(lines *json.Decoder) (e wire.Event) {
		t.Helper()
		if err := lines.Decode(&e); err != nil {
			t.Fatalf("the stream of events ends: %v", err)
		}
		return e
	}
	red, blue, all := listen(tokens["red"]), listen(tokens["blue"]), listen(tokens["all"])
	// until returns the locks that a stream tells of, up to one that ends it.
	until := func(lines *json.Decoder, last string) string {
		t.Helper()
		var names []string
		for len(names) == 0 || names[len(names)-1] != last {
			e := next(lines)
			if e.Type == wire.EventAcquired || e.Type == wire.EventLock { // in another list, to a slow client
				names = append(names, e.Lock.Name)
			}
			if e.Holder != nil && e.Holder.ID != "" {
				t.Errorf("an event shows an id: %+v", e.Holder)
			}
		}
		return strings.Join(names, " ")
	}
	for _, lines := range []*json.Decoder{red, blue, all} {
		for next(lines).Type != wire.EventReady {
			continue
		}
	}
	s.acquire(tokens["blue"], "of blue", "owner")
	until(blue, "of blue")
	s.acquire(tokens["all"], "secret", "owner")
	until(all, "secret")
	s.acquire(tokens["red"], "of red", "owner")
	if got := until(red, "of red"); got != "of red" {
		t.Errorf("red is told of %s, want only its own lock", got)
	}

	// Red loses the right to read.
	policy := readFile(t, s.file)
	writeFile(t, s.file, strings.Replace(policy, `["read", "acquire"]
namespace = "red"
prefixes`, `["acquire"]
namespace = "red"
prefixes`, 1))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	reloaded := time.Now()
	s.acquire(tokens["red"], "of nobody", "owner")
	for e := (wire.Event{}); red.Decode(&e) == nil; { // what red was told before, and then the end
		if at, err := time.Parse(time.RFC3339, e.At); e.Type != wire.EventLock && (err != nil || at.After(reloaded)) {
			t.Fatalf("red, without the right to read, is told %+v", e)
		}
	}
}

// TestServiceKeepsSecrets checks that nothing that the service says or writes contains an id or a
// credential, except the answers to the client itself, and those about one lock to clients with the
// verb admin.
func TestServiceKeepsSecrets(t *testing.T) {
	tokens := map[string]string{"worker": "", "ops": "", "admin": ""}
	s := startService(t, `
[token.worker]
{worker}
verbs = ["read", "acquire"]
prefixes = [""]
[token.ops]
{ops}
verbs = ["read", "break"]
prefixes = [""]
[token.admin]
{admin}
verbs = ["read", "admin"]
prefixes = [""]
`, tokens, nil)
	const holder, waiter, third = "holder-secret-number-1", "waiter-secret-number-2", "holder-secret-number-3"
	g := s.acquire(tokens["worker"], "deploy", holder)
	lease := wire.Lease{Name: "deploy", ID: g.ID}
	stale := wire.Lease{Name: "deploy", ID: third}
	guess, _ := NewToken()
	ops, worker := tokens["ops"], tokens["worker"]

	// A waiter gets its own id back. The others see that somebody waits.
	if a := s.send("POST", wire.PathAcquire, worker, wire.Acquire{Name: "deploy", ID: longID(waiter), Wait: 1}); a.status != http.StatusAccepted {
		t.Fatalf("%d %s, want 202", a.status, a.body)
	}
	var said strings.Builder
	said.WriteString(fmt.Sprint(
		// What others see, and each kind of refusal.
		s.send("POST", wire.PathAcquire, worker, wire.Acquire{Name: "deploy", ID: longID(third)}),
		s.send("GET", wire.PathLock+"?name=deploy", ops, nil),
		s.send("GET", wire.PathLocks, ops, nil),
		s.send("GET", wire.PathLocks, tokens["admin"], nil),
		s.send("GET", wire.PathStore, ops, nil),
		s.send("POST", wire.PathRenew, worker, wire.Renew{Lease: new(stale)}),
		s.send("POST", wire.PathRenew, worker, wire.Renew{Leases: []wire.Renewable{{Lease: lease}, {Lease: stale}}}),
		s.send("POST", wire.PathRelease, ops, lease),
		s.send("POST", wire.PathRelease, worker, stale),
		s.send("POST", wire.PathBreak, ops, wire.Break{Name: "deploy", Token: g.Token + 1, Reason: "x"}),
		s.send("POST", wire.PathAcquire, worker, map[string]any{"name": "deploy", "id": holder, "x": holder}),
		s.send("POST", wire.PathAcquire, worker, map[string]any{"name": "deploy", "id": []string{holder}}),
		s.send("POST", wire.PathAcquire, worker, wire.Acquire{Name: "deploy", ID: strings.Repeat(holder, 1000)}),
		s.send("GET", wire.PathLock+"?name=deploy&token="+worker, worker, nil),
		s.send("GET", "/"+worker, worker, nil),
		s.send("GET", wire.PathLock+"?name=deploy", guess, nil),
		s.send("GET", wire.PathLock+"?name=deploy", "a."+holder+".c", nil),
		s.send("GET", wire.PathLock+"?name=deploy", "", nil, func(r *http.Request) { r.SetBasicAuth("x", worker) }),
		s.send("POST", wire.PathWithdraw, worker, wire.Lease{Name: "deploy", ID: longID(waiter)}),
		s.send("POST", wire.PathBreak, ops, wire.Break{Name: "deploy", Token: g.Token, Reason: "the runner is gone"}),
		s.send("POST", wire.PathRelease, worker, lease),
	))
	said.WriteString(s.audit.String() + s.log.String())
	for what, secret := range map[string]string{
		"the holder": holder, "the waiter": waiter, "one who was refused": third, "the hold": g.ID, "a token": worker,
		"another token": ops, "a wrong token": guess,
	} {
		if i := strings.Index(said.String(), secret); i >= 0 {
			t.Errorf("the service shows %s: ...%s", what, said.String()[max(0, i-200):i+len(secret)])
		}
	}

	g = s.acquire(worker, "deploy", holder)
	if got := s.lock(tokens["admin"], "deploy").Holders[0].ID; got != holder {
		t.Errorf("with the verb admin the id is %q, want it", got)
	}
	if got := s.lock(ops, "deploy").Holders[0]; got.ID != "" || got.Token != g.Token {
		t.Errorf("without the verb admin the holder is %+v, want it without an id", got)
	}
}

// TestServiceCertificates checks mutual TLS and HTTP/2. Once the authority of a client is not
// believed any more, the client is refused, also on a connection that it has.
func TestServiceCertificates(t *testing.T) {
	authority := livetest.NewAuthority(t)
	dir := t.TempDir()
	authority.Write(t, dir, authority.Issue(t, x509.Certificate{}))
	s := startService(t, "[certificate.backup]\ndns = \"backup.example.com\"\nverbs = [\"acquire\"]\nprefixes = [\"\"]\n", nil, &TLSFiles{
		Cert: filepath.Join(dir, livetest.CertFile), Key: filepath.Join(dir, livetest.KeyFile),
		ClientCA: filepath.Join(dir, livetest.AuthorityFile),
	})
	names := x509.Certificate{DNSNames: []string{"backup.example.com"}}
	program := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{authority.Issue(t, names)}}
	s.client.Transport = &http.Transport{TLSClientConfig: program.Clone(), ForceAttemptHTTP2: true}
	s.acquire("", "a", "owner")

	// The same, as a program uses it.
	d, err := remotelock.Open(t.Context(), remotelock.Config{Servers: []string{s.url}, TLS: program})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()

	livetest.NewAuthority(t).Write(t, dir, authority.Issue(t, x509.Certificate{}))
	if err := s.certs.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := s.send("POST", wire.PathAcquire, "", wire.Acquire{Name: "b"}); got.status != http.StatusUnauthorized {
		t.Errorf("after its authority was removed, the client gets %d %s, want 401", got.status, got.body)
	}
}

// TestServiceInBrowsers checks that pages of others can't use answers.
func TestServiceInBrowsers(t *testing.T) {
	tokens := map[string]string{"ci": ""}
	s := startService(t, "[token.ci]\n{ci}\nverbs = [\"read\"]\nprefixes = [\"\"]\n", tokens, nil)
	for _, path := range []string{wire.PathLocks, "/nothing", wire.PathHealth} {
		h := s.send("GET", path, tokens["ci"], nil).header
		for _, name := range []string{"Content-Security-Policy", "Cross-Origin-Resource-Policy", "X-Content-Type-Options"} {
			if h.Get(name) == "" {
				t.Errorf("%s: the answer has no %s", path, name)
			}
		}
		if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: the answer admits other origins, or sets a cookie: %v", path, h)
		}
	}
}

// longID returns an id that is as long as the API demands.
func longID(name string) string { return name + strings.Repeat("-", max(0, wire.MinID-len(name))) }
