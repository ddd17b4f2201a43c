package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// A testAccess is an Access with what a test changes and looks at.
type testAccess struct {
	*Access
	t     *testing.T
	file  string
	audit bytes.Buffer
}

// newTestAccess returns the Access of a policy.
func newTestAccess(t *testing.T, policy string) *testAccess {
	t.Helper()
	a := &testAccess{t: t, file: filepath.Join(t.TempDir(), "policy.toml")}
	a.write(policy)
	var err error
	a.Access, err = Load(a.file, nil, NewAuditLog(&a.audit))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *testAccess) write(policy string) {
	a.t.Helper()
	if err := os.WriteFile(a.file, []byte(policy), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// request returns a request with a token; "" for none.
func request(token string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// admit returns the principal of a request that must be admitted.
func (a *testAccess) admit(r *http.Request) *serve.Principal {
	a.t.Helper()
	p, err := a.Authenticate(r)
	if err != nil {
		a.t.Fatal(err)
	}
	return p
}

// wantRefusal checks that an error is a problem of some kind.
func wantRefusal(t *testing.T, err error, kind string) *wire.Problem {
	t.Helper()
	var p *wire.Problem
	if !errors.As(err, &p) || p.Kind() != kind {
		t.Fatalf("error = %v, want a problem of the kind %s", err, kind)
	}
	return p
}

func TestVerbs(t *testing.T) {
	token, line := NewToken()
	a := newTestAccess(t, `
[namespace.payments]
[token.ci]
`+line+`
verbs = ["read", "acquire"]
namespace = "payments"
prefixes = ["deploy/", "migrate/"]
`)
	p := a.admit(request(token))
	if p.Name != "token.ci" || p.Prefix != "payments/" {
		t.Errorf("principal = %+v, want token.ci below payments/", p)
	}
	tests := []struct {
		act     serve.Action
		refusal string // "": none
	}{
		{serve.Action{Verb: serve.VerbAcquire, Op: serve.OpAcquire, Name: "deploy/shop"}, ""},
		{serve.Action{Verb: serve.VerbAcquire, Op: serve.OpAcquire, Name: "deploy"}, `token.ci may not acquire "deploy"`},
		{serve.Action{Verb: serve.VerbAcquire, Op: serve.OpAcquire, Name: "payments/deploy/shop"}, `token.ci may not acquire "payments/deploy/shop"`},
		{serve.Action{Verb: serve.VerbRead, Op: serve.OpGet, Name: "migrate/x"}, ""},
		{serve.Action{Verb: serve.VerbRead, Op: serve.OpList, Name: "", List: true}, ""},
		{serve.Action{Verb: serve.VerbRead, Op: serve.OpList, Name: "deploy/shop/", List: true}, ""},
		{serve.Action{Verb: serve.VerbRead, Op: serve.OpList, Name: "build/", List: true}, `token.ci may not read locks whose names begin with "build/"`},
		{serve.Action{Verb: serve.VerbBreak, Op: serve.OpBreak, Name: "deploy/shop"}, `token.ci may not break "deploy/shop"`},
		{serve.Action{Verb: serve.VerbReserve, Op: serve.OpAcquire, Name: "deploy/shop"}, `token.ci may not reserve "deploy/shop"`},
		{serve.Action{Verb: serve.VerbAcquire, Op: serve.OpFence, Name: "disk", Token: 5}, `token.ci may not acquire "disk"`},
		{serve.Action{Verb: serve.VerbAdmin, Op: serve.OpAudit, List: true}, "token.ci does not have the verb admin"},
		{serve.Action{Verb: serve.VerbRead, Op: serve.OpStore}, ""}, // clients ask for what the store promises
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%s %q", tt.act.Verb, tt.act.Op, tt.act.Name), func(t *testing.T) {
			a.audit.Reset()
			_, err := a.Begin(t.Context(), p, tt.act)
			if tt.refusal == "" {
				if err != nil {
					t.Errorf("error = %v, want nil", err)
				}
				return
			}
			if r := wantRefusal(t, err, "forbidden"); r.Detail != tt.refusal {
				t.Errorf("detail = %q, want %q", r.Detail, tt.refusal)
			}
			if got := a.audit.String(); !strings.Contains(got, `"event":"refused"`) || !strings.Contains(got, `"who":"token.ci"`) ||
				!strings.Contains(got, `"namespace":"payments"`) {
				t.Errorf("audit = %q, want a line about the refusal", got)
			}
		})
	}
	if a.May(p, serve.VerbRead, "build/x") || !a.May(p, serve.VerbRead, "deploy/x") {
		t.Error("May shows a lock that can't be read, or hides one that can")
	}
}

func TestCredentials(t *testing.T) {
	good, line := NewToken()
	ended, endedLine := NewToken()
	other, _ := NewToken()
	authority := livetest.NewAuthority(t)
	a := newTestAccess(t, `
[token.good]
`+line+`
verbs = ["read"]
prefixes = [""]
[token.ended]
`+endedLine+`
verbs = ["read"]
prefixes = [""]
until = 2020-01-01
[certificate.backup]
dns = "backup.example.com"
verbs = ["read"]
prefixes = [""]
[certificate.ops]
uri = "spiffe://example/ops"
verbs = ["read"]
prefixes = [""]
`)
	// withCert returns a request over a connection whose handshake has verified a certificate.
	withCert := func(template x509.Certificate) *http.Request {
		leaf, err := x509.ParseCertificate(authority.Issue(t, template).Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		r := request("")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf},
			VerifiedChains: [][]*x509.Certificate{{leaf}}}
		return r
	}
	unverified := withCert(x509.Certificate{DNSNames: []string{"backup.example.com"}})
	unverified.TLS.VerifiedChains = nil
	both := withCert(x509.Certificate{DNSNames: []string{"backup.example.com"}})
	both.Header.Set("Authorization", "Bearer "+other)
	twice := request(good)
	twice.Header.Add("Authorization", "Bearer "+good)
	basic := request("")
	basic.SetBasicAuth("good", good)
	inURL := request("")
	inURL.URL.RawQuery = "access_token=" + good

	tests := []struct {
		name string
		r    *http.Request
		who  string // "": refused
	}{
		{"Token", request(good), "token.good"},
		{"EndedToken", request(ended), ""},
		{"OtherToken", request(other), ""},
		{"Password", request("hunter2"), ""},
		{"LongRubbish", request(strings.Repeat("a.", 1<<20)), ""},
		{"Nothing", request(""), ""},
		{"Basic", basic, ""},
		{"TwoHeaders", twice, ""},
		{"InURL", inURL, ""},
		{"Certificate", withCert(x509.Certificate{DNSNames: []string{"x", "backup.example.com"}}), "certificate.backup"},
		{"CertificateByURI", withCert(x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "example", Path: "/ops"}}}), "certificate.ops"},
		{"OtherCertificate", withCert(x509.Certificate{DNSNames: []string{"backup.example.com.evil"}}), ""},
		{"UnverifiedCertificate", unverified, ""},
		{"EndedCertificate", withCert(x509.Certificate{DNSNames: []string{"backup.example.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Second)}), ""},
		{"BadTokenWithCertificate", both, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a.audit.Reset()
			p, err := a.Authenticate(tt.r)
			if tt.who != "" {
				if err != nil || p.Name != tt.who {
					t.Errorf("principal = %+v, %v, want %s", p, err, tt.who)
				}
				return
			}
			r := wantRefusal(t, err, "unauthenticated")
			for _, secret := range []string{good, ended, other, "hunter2"} {
				if strings.Contains(r.Detail+a.audit.String(), secret) {
					t.Errorf("%q or the audit log %q shows a credential", r.Detail, a.audit.String())
				}
			}
			// A browser that opens the console sends requests before it asks for a token.
			recorded := strings.Contains(a.audit.String(), `"remote":"192.0.2.1"`)
			if wanted := tt.r.Header.Get("Authorization") != "" || tt.r.TLS != nil && len(tt.r.TLS.VerifiedChains) > 0; recorded != wanted {
				t.Errorf("audit = %q, want a line with the address: %v", a.audit.String(), wanted)
			}
		})
	}
}

// TestReload checks that a bad policy changes nothing, and that a good one applies to
// principals that are there already.
func TestReload(t *testing.T) {
	token, line := NewToken()
	policy := "[token.ci]\n" + line + "\nverbs = [\"read\"]\nprefixes = [\"\"]\n"
	a := newTestAccess(t, policy)
	p := a.admit(request(token))

	a.write(policy + "[token.x]\nverb = 1\n")
	if err := a.Reload(); err == nil || !strings.Contains(err.Error(), a.file+": token.x.verb: ") {
		t.Errorf("Reload of a bad policy = %v, want the file and the setting", err)
	}
	if !a.May(p, serve.VerbRead, "x") {
		t.Error("after a bad policy the good one is gone")
	}

	// A list may lack some locks by now, and must not look complete.
	a.write(strings.Replace(policy, `[""]`, `["x", "y"]`, 1))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	list := serve.Action{Verb: serve.VerbRead, Op: serve.OpList, Name: "x", List: true}
	_, err := a.Begin(t.Context(), p, list)
	wantRefusal(t, err, "forbidden")
	if _, err := a.Begin(t.Context(), a.admit(request(token)), list); err != nil {
		t.Errorf("the list of a request that is sent again = %v", err)
	}

	_, otherLine := NewToken()
	a.write(strings.Replace(policy, line, otherLine, 1))
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if a.May(p, serve.VerbRead, "x") {
		t.Error("a principal whose token has been removed still has its rights")
	}
	_, err = a.Begin(t.Context(), p, serve.Action{Verb: serve.VerbRead, Op: serve.OpGet, Name: "x"})
	wantRefusal(t, err, "unauthenticated")
}

// TestMaxTTL checks that a namespace bounds each way to keep a lock without a renewal, and that a
// reservation, which needs a verb of its own, lasts for as long as its maker says.
func TestMaxTTL(t *testing.T) {
	token, line := NewToken()
	a := newTestAccess(t, `
[namespace.small]
max-ttl = "1m"
[token.ci]
`+line+`
verbs = ["acquire", "reserve"]
namespace = "small"
`)
	p := a.admit(request(token))
	const most, long = time.Minute, time.Minute + 1
	if got := a.LongestTTL(); got != most {
		t.Errorf("LongestTTL = %v, want %v", got, most)
	}
	for _, tt := range []struct {
		name string
		act  serve.Action
		want string // in the refusal; "": none
	}{
		{"TTL", serve.Action{Verb: serve.VerbAcquire, Op: serve.OpAcquire, Name: "a", TTL: most, MinHold: most}, ""},
		{"LongTTL", serve.Action{Verb: serve.VerbAcquire, Op: serve.OpAcquire, Name: "a", TTL: long}, "ttl_ms: [namespace.small] allows 1m0s"},
		{"LongMinHold", serve.Action{Verb: serve.VerbAcquire, Op: serve.OpAcquire, Name: "a", MinHold: long}, "min_hold_ms: [namespace.small] allows 1m0s"},
		{"LongRenewal", serve.Action{Verb: serve.VerbAcquire, Op: serve.OpRenew, Name: "a", TTL: long}, "ttl_ms:"},
		{"Reservation", serve.Action{Verb: serve.VerbReserve, Op: serve.OpAcquire, Name: "a", TTL: long}, ""},
		{"LongMinHoldOfReservation", serve.Action{Verb: serve.VerbReserve, Op: serve.OpAcquire, Name: "a", MinHold: long}, "min_hold_ms:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := a.Begin(t.Context(), p, tt.act)
			if tt.want == "" {
				if err != nil {
					t.Errorf("error = %v, want nil", err)
				}
				return
			}
			if r := wantRefusal(t, err, "forbidden"); !strings.Contains(r.Detail, tt.want) {
				t.Errorf("detail = %q, want %q in it", r.Detail, tt.want)
			}
		})
	}
}

// TestBreakIsRecorded checks what is recorded of a break, and that none happens without a record.
func TestBreakIsRecorded(t *testing.T) {
	token, line := NewToken()
	a := newTestAccess(t, "[token.oncall]\n"+line+"\nverbs = [\"break\"]\nprefixes = [\"\"]\n")
	p := a.admit(request(token))
	act := serve.Action{Verb: serve.VerbBreak, Op: serve.OpBreak, Name: "deploy", Token: 7, Why: "stuck"}
	end, err := a.Begin(t.Context(), p, act)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"outcome":"begun"`, `"who":"token.oncall"`, `"name":"deploy"`, `"token":"7"`, `"reason":"stuck"`, `"remote":"192.0.2.1"`} {
		if !strings.Contains(a.audit.String(), want) {
			t.Errorf("audit = %q, want %s before the break", a.audit.String(), want)
		}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, OutcomeDone}, {driver.ErrLost, OutcomeFailed}, {wire.NewProblem(wire.ProblemKind, "", 0), OutcomeFailed},
		{driver.ErrUnavailable, OutcomeUnknown}, {context.DeadlineExceeded, OutcomeUnknown},
	} {
		end(serve.Outcome{Err: tt.err})
		if got := a.Access.audit.Recent(1)[0].Outcome; got != tt.want {
			t.Errorf("after %v the outcome is %q, want %q", tt.err, got, tt.want)
		}
	}

	a.Access.audit = NewAuditLog(&fullDisk{})
	_, err = a.Begin(t.Context(), p, act)
	wantRefusal(t, err, "audit-unavailable")
	if !strings.Contains(err.Error(), "no space left") {
		t.Errorf("Begin = %v, want the cause, which the service logs", err)
	}
}

// TestRightsEnd checks that rights end while a principal is there.
func TestRightsEnd(t *testing.T) {
	token, line := NewToken()
	a := newTestAccess(t, "[token.ci]\n"+line+"\nverbs = [\"read\"]\nprefixes = [\"\"]\n")
	p := a.admit(request(token))
	if !a.May(p, serve.VerbRead, "x") {
		t.Error("May = false before the end of the token")
	}
	for sum, rights := range a.policy.Load().tokens {
		rights.Until = time.Now()
		a.policy.Load().tokens[sum] = rights
	}
	if a.May(p, serve.VerbRead, "x") {
		t.Error("May = true after the end of the token")
	}
	_, err := a.Begin(t.Context(), p, serve.Action{Verb: serve.VerbRead, Op: serve.OpGet, Name: "x"})
	wantRefusal(t, err, "unauthenticated")
}

// TestOwnTokens checks that a policy can't make a password a token.
func TestOwnTokens(t *testing.T) {
	sum := sha256.Sum256([]byte("hunter2"))
	a := newTestAccess(t, fmt.Sprintf("[token.ci]\nsha256 = \"%x\"\nverbs = [\"read\"]\nprefixes = [\"\"]\n", sum))
	_, err := a.Authenticate(request("hunter2"))
	wantRefusal(t, err, "unauthenticated")
}

// TestRemote checks whose word counts for the address of a client.
func TestRemote(t *testing.T) {
	p := &Policy{proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, tt := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"Direct", "192.0.2.1:99", nil, "192.0.2.1"},
		{"DirectLiar", "192.0.2.1:99", []string{"203.0.113.9"}, "192.0.2.1"},
		{"Proxy", "10.0.0.1:99", []string{"192.0.2.1"}, "192.0.2.1"},
		{"ProxyOfLiar", "10.0.0.1:99", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{"TwoProxies", "10.0.0.1:99", []string{"203.0.113.9, 192.0.2.1", "10.0.0.2"}, "192.0.2.1"},
		{"ProxyWithoutHeader", "10.0.0.1:99", nil, "10.0.0.1"},
		{"Rubbish", "10.0.0.1:99", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{"IPv6", "[2001:db8::1]:99", nil, "2001:db8::1"},
	} {
		r := request("")
		r.RemoteAddr = tt.peer
		r.Header["X-Forwarded-For"] = tt.forwarded
		if got := p.remote(r).String(); got != tt.want {
			t.Errorf("%s: remote = %s, want %s", tt.name, got, tt.want)
		}
	}
}
