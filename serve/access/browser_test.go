package access

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestProtectBrowsers(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	refuse := func(w http.ResponseWriter, _ *http.Request, err error) {
		var e *originError
		if !errors.As(err, &e) {
			t.Errorf("error = %v, want an originError", err)
		}
		w.WriteHeader(http.StatusForbidden)
	}
	tests := []struct {
		name, method, host string
		header             map[string]string
		public             bool // the listener is not on the loopback interface
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
		{name: "PublicName", method: "GET", host: "locks.example.com", public: true, ok: true},
		{name: "PublicCrossSite", method: "POST", host: "locks.example.com", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, public: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/v1/locks", nil)
			r.Host = tt.host
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			protectBrowsers(served, !tt.public, refuse).ServeHTTP(w, r)
			if got := w.Code == http.StatusNoContent; got != tt.ok {
				t.Errorf("status = %d, want served = %v", w.Code, tt.ok)
			}
			for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy"} {
				if w.Header().Get(h) == "" {
					t.Errorf("the answer has no %s", h)
				}
			}
		})
	}
}
