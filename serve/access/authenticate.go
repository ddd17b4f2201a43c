package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/remotelock/wire"
)

// A refusedError reports a credential that is not admitted, or that there is none. Its text
// contains no part of it.
type refusedError struct{ text string }

// Error implements the error interface.
func (e *refusedError) Error() string { return e.text }

// errNoCredentials reports a request without any.
var errNoCredentials = refusedf("a token or a client certificate is required")

func refusedf(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// bearer returns the token that a request carries, or nothing if it has no Authorization header.
func bearer(r *http.Request) (string, error) {
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) == 0:
		return "", nil
	case len(headers) > 1:
		return "", refusedf("there are several Authorization headers")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", refusedf("the Authorization header must be: Bearer TOKEN")
	}
	return token, nil
}

// An identity is who somebody has shown to be. It returns what a policy allows to them, so that
// those who stay for long lose what a new policy takes away.
type identity func(*Policy) (Rights, error)

// errUnknownToken does not say whether a token was ever known.
var errUnknownToken = refusedf("the token is not known")

// certificateIdentity returns the identity of the client certificate that the TLS handshake
// verified. A connection may live longer than the certificate, and than those of authorities.
func certificateIdentity(r *http.Request, certs *Certificates) (identity, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, errNoCredentials
	}
	leaf := r.TLS.VerifiedChains[0][0]
	var uris []string
	for _, u := range leaf.URIs {
		uris = append(uris, u.String()) // once: a list looks the rights up for each lock
	}
	return func(p *Policy) (Rights, error) {
		switch {
		case time.Now().After(leaf.NotAfter):
			return Rights{}, refusedf("the client certificate was valid until %s", leaf.NotAfter.UTC().Format(time.RFC3339))
		case certs != nil && !certs.verifies(r.TLS.PeerCertificates):
			return Rights{}, refusedf("no authority that --client-ca has now verifies the client certificate")
		}
		for _, entry := range p.certificates {
			if entry.dns != "" && slices.Contains(leaf.DNSNames, entry.dns) || entry.uri != "" && slices.Contains(uris, entry.uri) {
				return entry.rights, nil
			}
		}
		return Rights{}, refusedf("no [certificate.NAME] admits the client certificate")
	}, nil
}

// remote returns the address of the client. A proxy that the policy trusts says it in
// X-Forwarded-For, to which each proxy appends the address that it saw.
func (p *Policy) remote(r *http.Request) netip.Addr {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	addr, _ := netip.ParseAddr(host)
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(forwarded) - 1; i >= 0 && p.isProxy(addr); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(forwarded[i]))
		if err != nil {
			break
		}
		addr = next
	}
	return addr
}

func (p *Policy) isProxy(addr netip.Addr) bool {
	return slices.ContainsFunc(p.proxies, func(n netip.Prefix) bool { return n.Contains(addr.Unmap()) })
}

// checkOrigin refuses what a page of somebody else causes through the browser of a principal.
//
// A browser attaches no token by itself. But it does attach a client certificate, and it
// reaches services on its own host. So what changes something must come from a page of the same
// origin. And on the loopback interface the host of the URL must be this one, or one that the
// policy names: a page whose name an attacker points at 127.0.0.1 would be of the same origin.
func (p *Policy) checkOrigin(r *http.Request) error {
	if (len(p.hosts) > 0 || isLoopbackListener(r)) && !wire.IsLoopback(r.Host) &&
		!slices.Contains(p.hosts, wire.HostName(r.Host)) {
		return errors.New("the host in the URL is not one of this service; use localhost, or add it to hosts in the policy")
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return errors.New("a page of another site caused this request")
	}
	return nil
}

// isLoopbackListener reports whether a request came in on the loopback interface.
func isLoopbackListener(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && wire.IsLoopback(local.String())
}

const (
	// tokenPrefix is what all tokens begin with, so that people and scanners know a leaked one.
	tokenPrefix = "snib_"

	// tokenLength is that of a token with 130 random bits, as [rand.Text] writes them.
	tokenLength = len(tokenPrefix) + 26

	digestSize = sha256.Size
)

// NewToken returns a new token, and its line for a policy file. Nobody can derive the token from
// that line.
//
// A digest that is made to be slow, such as bcrypt, is for passwords, which can be guessed. A
// token has 130 random bits, so no number of guesses finds it, and each request would pay for
// the slow digest.
func NewToken() (token, line string) {
	token = tokenPrefix + rand.Text()
	digest := sha256.Sum256([]byte(token))
	return token, fmt.Sprintf("sha256 = %q", hex.EncodeToString(digest[:]))
}

// isToken reports whether a credential looks as [NewToken] makes tokens. No others are
// admitted, so a policy can't contain a password that somebody thought of.
func isToken(credential string) bool {
	return len(credential) == tokenLength && strings.HasPrefix(credential, tokenPrefix)
}

// tokenIdentity returns the identity of whoever shows a token. How long the search takes tells
// something of a digest, and nothing of a token that has it.
func tokenIdentity(token string) identity {
	sum := digest(sha256.Sum256([]byte(token)))
	return func(p *Policy) (Rights, error) {
		if rights, ok := p.tokens[sum]; ok && isToken(token) {
			return rights, nil
		}
		return Rights{}, errUnknownToken
	}
}
