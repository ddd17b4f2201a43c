package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sniblock/snib/serve/internal/console"
)

// TestHandler checks the answers at the paths of the console.
func TestHandler(t *testing.T) {
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
		{"Missing", "GET", "/console/nothing", http.StatusNotFound, "text/plain; charset=utf-8"},
		{"Outside", "GET", "/console/../ui/package.json", http.StatusNotFound, "text/plain; charset=utf-8"},
		{"Post", "POST", "/console/", http.StatusMethodNotAllowed, "text/plain; charset=utf-8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !console.Has(tt.path) {
				t.Fatalf("Has(%q) = false, want true", tt.path)
			}
			w := httptest.NewRecorder()
			console.Handler().ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
			if got := w.Header().Get("Content-Type"); w.Code != tt.status || got != tt.contentType {
				t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.path, w.Code, got, tt.status, tt.contentType)
			}
			policy := w.Header().Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("Content-Security-Policy = %q, want one that starts from nothing and allows no inline script", policy)
			}
		})
	}
	if console.Has("/v1/locks") {
		t.Error(`Has("/v1/locks") = true, want false`)
	}
}
