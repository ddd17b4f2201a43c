package access

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// noDigest is the SHA-256 of no token that anybody has.
const noDigest = "00000000000000000000000000000000000000000000000000000000000000aa"

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy(`
trusted-proxies = ["10.0.0.7", "10.1.0.0/16"]

[namespace.payments]
max-ttl = "5m"

[token.ci]
sha256 = "` + noDigest + `"
verbs = ["read", "break"]
namespace = "payments"
prefixes = ["deploy/"]
until = 2027-01-31

[certificate.backup]
dns = "backup.example.com"
verbs = ["acquire"]
prefixes = ["backup/"]
`)
	if err != nil {
		t.Fatal(err)
	}
	ci := p.All()[1] // behind the certificate
	if got, want := ci.Until, time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("until = %v, want %v", got, want)
	}
	if got := len(ci.Verbs); got != 2 {
		t.Errorf("verbs = %v, want read and break", ci.Verbs)
	}
	if got, want := p.namespaces["payments"], (Namespace{"payments", "payments/", 5 * time.Minute}); got != want {
		t.Errorf("namespace = %+v, want %+v", got, want)
	}
}

// TestBadPolicies checks that errors say where, what is wrong, and what would be right.
func TestBadPolicies(t *testing.T) {
	sha := `sha256 = "` + noDigest + "\"\n"
	tests := []struct {
		name, text string
		want       []string
	}{
		{"Syntax", "[token.ci]\nverbs = [\"read\"\n", []string{"line 2"}},
		{"Empty", "", []string{"admits nobody", "[token.NAME]"}},
		{"NoTable", "[token]\nci = 5\n", []string{`line 2 (last key "token.ci")`, "expected table"}},
		{"UnknownTable", "[tokens.ci]\n", []string{"tokens.ci: ", "token, "}},
		{"UnknownSetting", "[token.ci]\n" + sha + "verb = [\"read\"]\n", []string{"token.ci.verb: ", "verbs"}},
		{"UnknownVerb", "[token.ci]\n" + sha + "verbs = [\"raed\"]\nprefixes = [\"\"]\n", []string{"token.ci.verbs: ", `"raed"`, "read, acquire, break, reserve, admin"}},
		{"UnknownNamespace", "[token.ci]\n" + sha + "verbs = [\"read\"]\nnamespace = \"x\"\n", []string{"token.ci.namespace: ", "[namespace.x]", "write one"}},
		{"NoVerbs", "[token.ci]\n" + sha + "prefixes = [\"a\"]\n", []string{"token.ci: it has no verbs"}},
		{"NoBreadth", "[token.ci]\n" + sha + "verbs = [\"read\"]\n", []string{"token.ci: ", "neither namespace nor prefixes", `prefixes = [""]`}},
		{"NoDigest", "[token.ci]\nverbs = [\"read\"]\nprefixes = [\"a\"]\n", []string{"token.ci: ", "snib serve token ci"}},
		{"PlainToken", "[token.ci]\nsha256 = \"snib_ABC\"\n", []string{"line 2", "64 hexadecimal digits"}},
		{"PlainTokenWithoutQuotes", "[token.ci]\nsha256 = snib_ABC\n", []string{"line 2"}},
		{"DigestWithoutQuotes", "[token.ci]\nsha256 = " + noDigest + "\n", []string{"line 2"}},
		{"SameToken", "[token.a]\n" + sha + "verbs = [\"read\"]\nprefixes = [\"a\"]\n[token.b]\n" + sha, []string{"token.b.sha256: ", "same token as token.a"}},
		{"LocalTime", "[token.ci]\nuntil = 2027-01-31T10:00:00\n", []string{"line 2", "no zone", "Z"}},
		{"TextAsTime", "[token.ci]\nuntil = \"2027-01-31\"\n", []string{"line 2", "without quotes"}},
		{"NumberAsDuration", "[namespace.a]\nmax-ttl = 30\n", []string{"line 2", `"90s"`}},
		{"OverlappingNamespaces", "[namespace.a]\n[namespace.b]\nprefix = \"a/b/\"\n", []string{"namespace.b.prefix: ", "[namespace.a]", "overlap"}},
		{"TwoSubjects", "[certificate.a]\ndns = \"x\"\nuri = \"y\"\n", []string{"certificate.a: ", "one of dns and uri"}},
		{"BadProxy", "trusted-proxies = [\"balancer\"]\n", []string{"trusted-proxies: ", `"balancer"`, "10.0.0.0/24"}},
		{"HostWithPort", "hosts = [\"locks.example.com:443\"]\n", []string{"hosts: ", "without scheme and port"}},
		{"NotATable", "token = \"x\"\n", []string{"token: ", "[token.NAME]"}},
		{"NotATables", "[[token]]\n" + sha, []string{"[token.NAME]"}},
		{"ValueAsTable", "[token]\nci = 3\n", []string{"line 2"}},
		{"RemovedSetting", "[namespace.a]\nlocks = 3\n", []string{"namespace.a.locks: ", "prefix, max-ttl"}},
		{"RemovedTable", "[oidc.a]\nissuer = \"https://x\"\n", []string{"oidc.a"}},
		{"EmptyNamespace", "[token.ci]\n" + sha + "namespace = \"\"\n", []string{"line 3", "not empty"}},
		{"NoPrefixes", "[token.ci]\n" + sha + "prefixes = []\n", []string{"line 3", "not empty"}},
		{"TextAsList", "[token.ci]\n" + sha + "verbs = \"read\"\n", []string{"line 3", "list of texts"}},
		{"PrefixOfNoName", "[namespace.a]\nprefix = \"a\\u0000\"\n", []string{"namespace.a.prefix: ", "NUL"}},
		{"EmptyPrefix", "[namespace.a]\nprefix = \"\"\n", []string{"line 2", "not empty"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParsePolicy(tt.text)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %q, want %q in it", err, want)
				}
			}
			for _, secret := range []string{noDigest, "snib_ABC"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error = %q, which shows a value that may be a secret", err)
				}
			}
		})
	}
}

func TestOpenPolicyFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mode does not say who may read a file on Windows")
	}
	file := filepath.Join(t.TempDir(), "policy.toml")
	if err := os.WriteFile(file, []byte("[token.ci]\nsha256 = \""+noDigest+"\"\nverbs = [\"read\"]\nprefixes = [\"\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o600, true}, {0o640, true}, {0o644, false}, {0o620, false}, {0o602, false}} {
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadPolicy(file)
		if ok := err == nil; ok != tt.ok {
			t.Errorf("mode %04o: error %v, want accepted = %v", tt.mode, err, tt.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "chmod go-w,o-rwx "+file) {
			t.Errorf("mode %04o: error %q does not say what to run", tt.mode, err)
		}
	}
}
