package cli

import (
	"strings"
	"testing"

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
		{"AuditOfNothing", "127.0.0.1:7420", accessFlags{auditLog: "a"}, "there is no --policy"},
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
