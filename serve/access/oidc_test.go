package access

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// issuerPolicy returns a policy that admits tokens of an issuer.
func issuerPolicy(t testing.TB, i *testIssuer) *Policy {
	t.Helper()
	p, err := ParsePolicy(fmt.Sprintf(`
[oidc.github]
issuer = %q
audience = "https://locks.example.com"
ca = %q
[oidc.github.rule.release]
claims = { repository = "example/shop", ref = ["refs/heads/main", "refs/tags/*"], environment = "production" }
verbs = ["acquire", "break"]
prefixes = ["deploy/"]
[oidc.github.rule.build]
claims = { repository = "example/shop", ref = ["refs/heads/main", "refs/tags/*"] }
verbs = ["acquire"]
prefixes = ["build/"]
`, i.URL, i.authorityFile(t)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// find returns what a policy allows to whoever shows a token.
func find(t testing.TB, p *Policy, token string) (Rights, error) {
	t.Helper()
	id, err := p.identify(t.Context(), nil, token)
	if err != nil {
		return Rights{}, err
	}
	return id(p)
}

func TestIssuerTokens(t *testing.T) {
	i := newTestIssuer(t)
	p := issuerPolicy(t, i)
	stranger := newSigningKey(t)
	es256 := map[string]any{"alg": "ES256", "kid": "one"}
	tests := []struct {
		name, token string
		prefix      string // of the rights; "": refused
		err         string
	}{
		{name: "Main", token: i.token(t, nil), prefix: "build/"},
		{name: "Tag", token: i.token(t, map[string]any{"ref": "refs/tags/v1"}), prefix: "build/"},
		{name: "FirstRule", token: i.token(t, map[string]any{"environment": "production"}), prefix: "deploy/"},
		{name: "ListClaim", token: i.token(t, map[string]any{"ref": []string{"x", "refs/heads/main"}}), prefix: "build/"},
		{name: "AudienceList", token: i.token(t, map[string]any{"aud": []string{"other", "https://locks.example.com"}}), prefix: "build/"},
		{name: "OtherAudience", token: i.token(t, map[string]any{"aud": "https://other.example.com"}), err: "did not issue this token for"},
		{name: "OtherBranch", token: i.token(t, map[string]any{"ref": "refs/heads/mainly"}), err: "no rule"},
		{name: "NoClaim", token: i.token(t, map[string]any{"repository": nil}), err: "no rule"},
		{name: "ClaimIsTable", token: i.token(t, map[string]any{"ref": map[string]any{"x": "refs/heads/main"}}), err: "no rule"},
		{name: "Expired", token: i.token(t, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), err: "ended at"},
		{name: "NotYet", token: i.token(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), err: "did not issue"},
		{name: "NoEnd", token: i.token(t, map[string]any{"exp": nil}), err: "ended at"},
		{name: "OtherKey", token: sign(t, stranger, es256, i.claims(nil)), err: "did not issue"},
		{name: "OtherIssuer", token: i.token(t, map[string]any{"iss": "https://evil.example"}), err: "not known"},
		{name: "NoSignature", token: strings.Join(strings.Split(i.token(t, nil), ".")[:2], ".") + ".", err: "did not issue"},
		{name: "AlgorithmNone", token: sign(t, stranger, map[string]any{"alg": "none"}, i.claims(nil)), err: "did not issue"},
		{name: "AlgorithmHMAC", token: sign(t, stranger, map[string]any{"alg": "HS256", "kid": "one"}, i.claims(nil)), err: "did not issue"},
		{name: "AlgorithmQuoted", token: sign(t, stranger, map[string]any{"alg": "fetching keys"}, i.claims(nil)), err: "did not issue"},
		{name: "AudienceQuoted", token: i.token(t, map[string]any{"aud": "fetching keys"}), err: "did not issue"},
		{name: "Rubbish", token: "a.b.c", err: "not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rights, err := find(t, p, tt.token)
			if tt.prefix != "" {
				if err != nil || rights.Prefixes[0] != tt.prefix || rights.Name != "oidc.github:repo:example/shop" || rights.Until.IsZero() {
					t.Errorf("rights = %+v, %v, want those of %s until the token ends", rights, err, tt.prefix)
				}
				return
			}
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error = %v, want a RefusedError with %q", err, tt.err)
			}
			if err != nil && len(tt.token) > 20 && strings.Contains(err.Error(), tt.token[:20]) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

// TestIssuerDown checks that an issuer that does not answer makes nobody a stranger, and is
// asked again.
func TestIssuerDown(t *testing.T) {
	i := newTestIssuer(t)
	p := issuerPolicy(t, i)
	i.down.Store(true)
	token := i.token(t, nil)
	began := time.Now()
	for range 3 {
		_, err := find(t, p, token)
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) {
			t.Fatalf("error = %v, want an UnavailableError", err)
		}
	}
	if got := i.requests.Load(); got != 1 && time.Since(began) < issuerInterval {
		t.Errorf("three tokens at once made %d requests, want 1", got)
	}

	// It answers, but its keys can't be had.
	i.down.Store(false)
	p.issuers[0].failedAt = time.Time{}
	if _, err := p.issuers[0].ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.down.Store(true)
	var unavailable *UnavailableError
	if _, err := find(t, p, token); !errors.As(err, &unavailable) {
		t.Fatalf("error without keys = %v, want an UnavailableError", err)
	}
	i.down.Store(false)
	// The library may still share the answer to a request that has just failed.
	livetest.Await(t, "keys of an issuer that is back", func() error {
		_, err := find(t, p, token)
		return err
	})
}

// TestIssuerIsNotFlooded checks that tokens which anybody can write do not make the service a
// hose.
func TestIssuerIsNotFlooded(t *testing.T) {
	i := newTestIssuer(t)
	p := issuerPolicy(t, i)
	forged := sign(t, newSigningKey(t), map[string]any{"alg": "ES256", "kid": "unknown"}, i.claims(nil))
	began := time.Now()
	for range 100 {
		if _, err := find(t, p, forged); err == nil {
			t.Fatal("a forged token was admitted")
		}
	}
	most := issuerBurst + 1 + int64(time.Since(began)/issuerInterval)
	if got := i.requests.Load(); got > most {
		t.Errorf("100 forged tokens made %d requests to the issuer, want at most %d", got, most)
	}
	if _, err := find(t, p, i.token(t, nil)); err != nil {
		t.Errorf("a good token after that: %v, want nil: the keys are known", err)
	}
}
