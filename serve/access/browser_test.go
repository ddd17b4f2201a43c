package access

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOrigins sends each request with a token of the policy: that is no way around.
func TestOrigins(t *testing.T) {
	token, line := NewToken()
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7117}
	public := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	const named = `hosts = ["locks.example.com"]`
	tests := []struct {
		name, method, host string
		header             map[string]string
		listener           net.Addr
		hosts              string // in the policy
		ok                 bool
	}{
		{name: "Curl", method: "POST", host: "localhost:7117", ok: true},
		{name: "Address", method: "POST", host: "127.0.0.1:7117", ok: true},
		{name: "IPv6", method: "POST", host: "[::1]:7117", ok: true},
		{name: "OwnPage", method: "POST", host: "localhost:7117", header: map[string]string{"Sec-Fetch-Site": "same-origin"}, ok: true},
		{name: "CrossSite", method: "POST", host: "localhost:7117", header: map[string]string{"Sec-Fetch-Site": "cross-site"}},
		{name: "SameSiteOtherPort", method: "POST", host: "localhost:7117", header: map[string]string{"Sec-Fetch-Site": "same-site"}},
		{name: "OldBrowser", method: "DELETE", host: "localhost:7117", header: map[string]string{"Origin": "https://evil.example"}},
		{name: "OldBrowserOwnPage", method: "PUT", host: "localhost:7117", header: map[string]string{"Origin": "http://localhost:7117"}, ok: true},
		{name: "Sandboxed", method: "POST", host: "localhost:7117", header: map[string]string{"Origin": "null"}},
		{name: "Rebound", method: "GET", host: "evil.example:7117", header: map[string]string{"Sec-Fetch-Site": "same-origin"}},
		{name: "ReboundNumber", method: "GET", host: "127.0.0.1.evil.example"},
		{name: "NoHost", method: "GET", host: ""},
		{name: "Named", method: "GET", host: "Locks.Example.com", hosts: named, ok: true},
		{name: "NamedAndLocal", method: "GET", host: "localhost:7117", hosts: named, ok: true},
		{name: "PublicName", method: "GET", host: "locks.example.com", listener: public, ok: true},
		{name: "PublicCrossSite", method: "POST", host: "locks.example.com", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, listener: public},
		{name: "PublicNotNamed", method: "GET", host: "evil.example", listener: public, hosts: named},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.listener == nil {
				tt.listener = loopback
			}
			r := httptest.NewRequest(tt.method, "/v1/locks", nil)
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.listener))
			r.Host = tt.host
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			a := newTestAccess(t, tt.hosts+"\n[token.ci]\n"+line+"\nverbs = [\"acquire\"]\nprefixes = [\"\"]\n")
			if _, err := a.Authenticate(r); !tt.ok {
				wantRefusal(t, err, "forbidden")
			} else if err != nil {
				t.Errorf("error = %v, want it admitted", err)
			}
		})
	}
}
