package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/serve/access"
)

func TestAccessFlags(t *testing.T) {
	pair := access.TLSFiles{Cert: "c", Key: "k"}
	withCA := access.TLSFiles{Cert: "c", Key: "k", ClientCA: "a"}
	for _, tt := range []struct {
		name, listen string
		flags        accessFlags
		want         string // in the error; "": none
	}{
		{"Local", "127.0.0.1:7420", accessFlags{}, ""},
		{"LocalIPv6", "[::1]:7420", accessFlags{}, ""},
		{"LocalName", "localhost:7420", accessFlags{}, ""},
		{"All", ":7420", accessFlags{}, "--policy must say"},
		{"AllIPv4", "0.0.0.0:7420", accessFlags{}, "--policy must say"},
		{"Name", "db.example.com:7420", accessFlags{}, "--policy must say"},
		{"TLSIsNoPolicy", ":7420", accessFlags{tls: pair}, "--policy must say"},
		{"Policy", ":7420", accessFlags{policy: "p", tls: withCA}, ""},
		{"AuditWithoutPolicy", "127.0.0.1:7420", accessFlags{auditLog: "a"}, ""},
		{"NoKey", "127.0.0.1:7420", accessFlags{tls: access.TLSFiles{Cert: "c"}}, "belong together"},
		{"NoCertificate", ":7420", accessFlags{policy: "p", tls: access.TLSFiles{Key: "k"}}, "belong together"},
		{"AuthorityWithoutTLS", ":7420", accessFlags{policy: "p", tls: access.TLSFiles{ClientCA: "a"}}, "--client-ca needs TLS"},
		{"AuthorityOfNothing", "127.0.0.1:7420", accessFlags{tls: withCA}, "--client-ca needs a --policy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.flags.check(tt.listen)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || exitCode(err) != exitUsage) {
				t.Errorf("error = %v, want %q and exit %d", err, tt.want, exitUsage)
			}
		})
	}
}

// TestRightsTable shows the example of docs/serve-access.md as people see it.
func TestRightsTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "serve-access.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```toml\n")
	text, _, _ = strings.Cut(text, "```")
	policy, err := access.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	want := `WHO                 MAY                 NAMESPACE  LOCKS               UNTIL
certificate.backup  acquire             payments   backup/*            -
token.deploy        read acquire        payments   deploy/* migrate/*  ended 2027-06-30T00:00:00Z
token.oncall        read break reserve  -          all                 -
`
	if got := rightsTable(policy.All(), time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC)); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}

// TestSocketClosedTwice checks that the second call, which the end of the service makes, leaves the
// socket of the next service alone, although its file may have the number of the first one.
func TestSocketClosedTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := listenOnSocket(path)
	if err != nil || first.Close() != nil {
		t.Fatal(err)
	}
	next, err := listenOnSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	_ = first.Close() // it was closed
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of the next service: %v", err)
	}
}
