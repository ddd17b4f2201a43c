package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"
)

const (
	// issuerTimeout bounds a request to an issuer.
	issuerTimeout = 5 * time.Second

	// issuerBurst and issuerInterval bound how often an issuer is asked: a token that names an
	// unknown key makes the service ask for keys again, and anybody can write such a token.
	issuerBurst    = 10
	issuerInterval = 2 * time.Second

	// maxCredential bounds what is parsed. Tokens of Kubernetes and GitHub have 1 to 3 KiB.
	maxCredential = 16 << 10

	// maxIssuerAnswer bounds what is read of an issuer.
	maxIssuerAnswer = 1 << 20
)

// errIssuerBusy means that an issuer was asked too often to be asked now.
var errIssuerBusy = errors.New("the issuer was asked for its keys too often in the last seconds")

// An issuer is an OpenID Connect provider in a policy. It is asked for its keys when the first
// of its tokens arrives, so a service starts while an issuer is down.
type issuer struct {
	name string
	*keySource
	rules []claimRule
}

// A keySource has the keys of an issuer.
type keySource struct {
	address   string // of the issuer
	audience  string
	authority string // a file with the certificates of its TLS; "": those of the system

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil until the issuer has answered
	client   *http.Client
	failure  error     // of the last request for the address of the keys
	failedAt time.Time // when that failed
}

// isJWT reports whether a credential looks as a signed JSON Web Token.
func isJWT(credential string) bool {
	return len(credential) <= maxCredential && strings.Count(credential, ".") == 2
}

// unverifiedIssuer returns the issuer that a token names. Nothing but the choice of the keys
// follows from it.
func unverifiedIssuer(token string) string {
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// verify returns the identity of whoever shows a token. The error is an [*UnavailableError] if
// the issuer could not be asked, and else says why the token is refused.
func (i *issuer) verify(ctx context.Context, token string) (identity, error) {
	verifier, err := i.ready(ctx)
	if err != nil {
		return nil, &UnavailableError{Issuer: i.name, Err: err}
	}
	verified, err := verifier.Verify(ctx, token)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return nil, refusedf("the token ended at %s", expired.Expiry.UTC().Format(time.RFC3339))
	case err != nil && isUnavailable(err):
		return nil, &UnavailableError{Issuer: i.name, Err: err}
	case err != nil:
		return nil, refusedf("%s did not issue this token for %q", i.address, i.audience)
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return nil, refusedf("the claims of the token are malformed")
	}
	return func(p *Policy) (Rights, error) {
		rights, err := p.rightsOf(i.address, i.audience, claims)
		rights.Name += ":" + verified.Subject
		return rights.endBy(verified.Expiry), err
	}, nil
}

// rightsOf returns what the claims of a token get that an issuer has issued for an audience.
func (p *Policy) rightsOf(address, audience string, claims map[string]any) (Rights, error) {
	for _, i := range p.issuers {
		if i.address != address || i.audience != audience {
			continue
		}
		for _, rule := range i.rules {
			if rule.matches(claims) {
				return rule.rights, nil
			}
		}
		return Rights{}, refusedf("no rule of [%s] admits the claims of this token", i.name)
	}
	return Rights{}, errUnknownToken
}

// matches reports whether a token has all claims of the rule. A claim that is a list needs one
// of its values.
func (c claimRule) matches(claims map[string]any) bool {
	for name, patterns := range c.claims {
		found := false
		for _, value := range claimTexts(claims[name]) {
			found = found || matchClaim(patterns, value)
		}
		if !found {
			return false
		}
	}
	return true
}

func claimTexts(claim any) []string {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case bool:
		return []string{strconv.FormatBool(c)}
	case []any:
		var texts []string
		for _, item := range c {
			if text, ok := item.(string); ok {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}

// ready asks the issuer for the address of its keys, unless it has answered before. Callers at
// the same time share a request, and its failure.
func (i *keySource) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.verifier != nil:
		return i.verifier, nil
	case i.failure != nil && time.Since(i.failedAt) < issuerInterval:
		return nil, i.failure
	}
	i.verifier, i.failure = i.discover(context.WithoutCancel(ctx))
	i.failedAt = time.Now()
	return i.verifier, i.failure
}

func (i *keySource) discover(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	if i.client == nil {
		client, err := i.newClient()
		if err != nil {
			return nil, err
		}
		i.client = client
	}
	ctx = oidc.ClientContext(ctx, i.client)
	provider, err := oidc.NewProvider(ctx, i.address)
	if err != nil {
		return nil, err
	}
	return provider.VerifierContext(ctx, &oidc.Config{ClientID: i.audience}), nil
}

func (i *keySource) newClient() (*http.Client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: issuerTimeout,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if i.authority != "" {
		pem, err := os.ReadFile(i.authority)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no certificate", i.authority)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	paced := &pacedTransport{next: transport, pace: rate.NewLimiter(rate.Every(issuerInterval), issuerBurst)}
	return &http.Client{Transport: paced, Timeout: issuerTimeout}, nil
}

// A pacedTransport refuses requests beyond a rate, and cuts answers off that are too long.
type pacedTransport struct {
	next http.RoundTripper
	pace *rate.Limiter
}

// RoundTrip implements [http.RoundTripper].
func (t *pacedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.pace.Allow() {
		return nil, errIssuerBusy
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxIssuerAnswer), resp.Body}
	return resp, nil
}

// isUnavailable reports whether a token could not be verified because the keys of its issuer
// could not be had. The library wraps that cause with a text only. Other texts may quote the token,
// but do not begin like that.
func isUnavailable(err error) bool {
	return strings.HasPrefix(err.Error(), "failed to verify signature: fetching keys ")
}
