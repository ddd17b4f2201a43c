package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// A testIssuer is an OpenID Connect provider. It shares no code with the library that verifies.
type testIssuer struct {
	*httptest.Server
	key      *ecdsa.PrivateKey
	requests atomic.Int64
	down     atomic.Bool
}

func newTestIssuer(t testing.TB) *testIssuer {
	t.Helper()
	i := &testIssuer{key: newSigningKey(t)}
	i.Server = httptest.NewTLSServer(i)
	t.Cleanup(i.Close)
	return i
}

func newSigningKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// ServeHTTP implements [http.Handler].
func (i *testIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.requests.Add(1)
	if i.down.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys",
			"authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	case "/keys":
		json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "one", "use": "sig",
			"x": encode(i.key.X.FillBytes(make([]byte, 32))), "y": encode(i.key.Y.FillBytes(make([]byte, 32))),
		}}})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// authorityFile writes the certificate of the issuer's TLS into a file.
func (i *testIssuer) authorityFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "issuer.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// claims returns the claims of a token for this service, with changes; nil removes one.
func (i *testIssuer) claims(changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": i.URL, "aud": "https://locks.example.com", "sub": "repo:example/shop",
		"repository": "example/shop", "ref": "refs/heads/main",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for k, v := range changes {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	return claims
}

// sign returns a token that key signs.
func sign(t testing.TB, key *ecdsa.PrivateKey, header map[string]any, claims map[string]any) string {
	t.Helper()
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	c, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed := encode(h) + "." + encode(c)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// token returns a token that the issuer signed.
func (i *testIssuer) token(t testing.TB, changes map[string]any) string {
	t.Helper()
	return sign(t, i.key, map[string]any{"alg": "ES256", "kid": "one"}, i.claims(changes))
}
