package access

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// pagePolicy lets a page of the service load its own files and talk to the service, and nothing
// else. Text from a store that becomes part of a page by mistake is not run.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// protectBrowsers returns a handler that web pages of others can't use through the browser of
// somebody who may: it refuses requests that another origin causes to change something, and its
// answers can't be framed, and are never taken for another type than they say.
//
// If the listener is on the loopback interface, it also refuses hosts that are not names of
// this machine: a page whose name an attacker points at 127.0.0.1 would be of the same origin.
// Elsewhere a credential stops that, because a browser attaches none to it.
func protectBrowsers(next http.Handler, loopback bool, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	var origins http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if loopback && !isLocalHost(r.Host) {
			refuse(w, r, &originError{"the Host header names another machine; use localhost or 127.0.0.1"})
			return
		}
		if err := origins.Check(r); err != nil {
			refuse(w, r, &originError{"a page of another origin caused this request"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// An originError reports a request that a page of somebody else may have caused.
type originError struct{ text string }

func (e *originError) Error() string { return e.text }

// isLocalHost reports whether a Host header names this machine: localhost, or a loopback
// address, with any port.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
