package access

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/remotelock/wire"
)

// TestNginxPage runs nginx with the configuration of docs/serve-access.md before a service. It
// limits acquisitions, and neither renewals nor releases.
func TestNginxPage(t *testing.T) {
	nginx := livetest.Binary(t, "nginx", "nginx", "/usr/sbin")
	block := blocksOf(readFile(t, "../../docs/serve-access.md"), "nginx")[0]
	tokens := map[string]string{"ci": ""}
	s := startService(t, "trusted-proxies = [\"127.0.0.1\"]\n[token.ci]\n{ci}\nverbs = [\"acquire\"]\nprefixes = [\"\"]\n", tokens, nil)
	dir, ci := t.TempDir(), tokens["ci"]
	secure := livetest.Certify(t, dir)
	const admitted = 6 // at so low a rate: the first one, and what burst allows
	proxy := livetest.Start(t, livetest.Command{
		Name: "nginx", Path: nginx, Dir: dir,
		Args: func(port int) []string {
			conf := strings.NewReplacer("http://127.0.0.1:7420", s.url, "listen 7443", fmt.Sprint("listen 127.0.0.1:", port),
				"rate=100r/s", "rate=1r/m", "burst=200", fmt.Sprint("burst=", admitted-1)).Replace(block)
			writeFile(t, filepath.Join(dir, "nginx.conf"), "daemon off; master_process off; pid nginx.pid; events {}\nhttp {\n"+
				"access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; "+
				"uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"+conf+"}\n")
			return []string{"-p", dir, "-c", "nginx.conf", "-e", "stderr"}
		},
		Ready: func(addr string) error {
			conn, err := tls.Dial("tcp", addr, secure)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	})
	s.client.Transport = &http.Transport{TLSClientConfig: secure}
	s.url = "https://" + proxy.Addr()

	g := s.acquire(ci, "a", "a")
	lease := wire.Lease{Name: g.Name, ID: g.ID}
	refused := 0
	for i := range 20 {
		if s.send("POST", wire.PathAcquire, ci, wire.Acquire{Name: fmt.Sprint(i)}).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if want := 20 - admitted + 1; refused > want || refused < want-2 { // a minute or two may pass meanwhile
		t.Errorf("nginx refused %d of 20 acquisitions, want %d", refused, want)
	}
	for range 20 {
		if a := s.send("POST", wire.PathRenew, ci, wire.Renew{Lease: &lease}); a.status != http.StatusOK {
			t.Fatalf("a renewal, while acquisitions are refused: %d %s, want 200", a.status, a.body)
		}
	}
	if a := s.send("POST", wire.PathRelease, ci, lease); a.status != http.StatusNoContent {
		t.Errorf("a release, while acquisitions are refused: %d %s, want 204", a.status, a.body)
	}
}
