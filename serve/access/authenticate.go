package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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

// identify returns the identity of whoever sent a request. A token decides if there is one, and
// otherwise the certificate of the connection.
func identify(r *http.Request, token string) (identity, error) {
	switch {
	case token == "":
		return certificateIdentity(r)
	case isToken(token):
		return tokenIdentity(token), nil
	}
	return nil, errUnknownToken
}

// certificateIdentity returns the identity of the client certificate that the TLS handshake
// verified.
func certificateIdentity(r *http.Request) (identity, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, errNoCredentials
	}
	leaf := r.TLS.VerifiedChains[0][0]
	var uris []string
	for _, u := range leaf.URIs {
		uris = append(uris, u.String()) // once: a list looks the rights up for each lock
	}
	return func(p *Policy) (Rights, error) {
		for _, entry := range p.certificates {
			if entry.matches(leaf.DNSNames, uris) {
				// A connection may live longer than its certificate.
				return entry.rights.endBy(leaf.NotAfter), nil
			}
		}
		return Rights{}, refusedf("no [certificate.NAME] admits the client certificate")
	}, nil
}

func (e certificateEntry) matches(dnsNames, uris []string) bool {
	if e.dns != "" {
		return slices.Contains(dnsNames, e.dns)
	}
	return slices.Contains(uris, e.uri)
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
