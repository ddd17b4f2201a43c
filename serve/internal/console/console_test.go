package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sniblock/snib/serve/internal/console"
)

// TestServe checks the answers at the paths of the console.
func TestServe(t *testing.T) {
	tests := []struct {
		name, method, path string
		status             int
		contentType        string
	}{
		{"Root", "GET", "/", http.StatusFound, ""},
		{"NoSlash", "GET", "/console", http.StatusFound, ""},
		{"Page", "GET", "/console/", http.StatusOK, "text/html; charset=utf-8"},
		{"Script", "GET", "/console/console.js", http.StatusOK, "text/javascript; charset=utf-8"},
		{"Head", "HEAD", "/console/console.css", http.StatusOK, "text/css; charset=utf-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, tt.path, nil)
			if !console.Has(r) {
				t.Fatalf("Has(%s %s) = false, want true", tt.method, tt.path)
			}
			w := httptest.NewRecorder()
			console.Serve(w, r)
			if got := w.Header().Get("Content-Type"); w.Code != tt.status || got != tt.contentType {
				t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.path, w.Code, got, tt.status, tt.contentType)
			}
			policy := w.Header().Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("Content-Security-Policy = %q, want one that starts from nothing and allows no inline script", policy)
			}
		})
	}
	for _, other := range []string{
		"GET /v1/locks", "GET /console/nothing", "GET /console/../ui/package.json", "GET /consoles", "GET /console//", "POST /console/", "POST /",
	} {
		method, path, _ := strings.Cut(other, " ")
		if console.Has(httptest.NewRequest(method, path, nil)) {
			t.Errorf("Has(%s) = true, want false: the service answers it with a problem", other)
		}
	}
}
