package access

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/remotelock/wire"
)

// TestPolicyPage checks that the policies of the page are accepted.
func TestPolicyPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve-access.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := blocksOf(string(page), "toml")
	if len(blocks) != 2 {
		t.Fatalf("the page has %d policies, want 2", len(blocks))
	}
	p, err := ParsePolicy(blocks[1] + blocks[0]) // a setting of the file stands before its tables
	if err != nil {
		t.Fatal(err)
	}
	if len(p.tokens) != 2 || len(p.certificates) != 1 || len(p.proxies) != 2 || p.namespaces["payments"].MaxTTL != 5*time.Minute {
		t.Errorf("policy = %+v, want what the page shows", p)
	}
}

// TestPageInService starts a service with the policy of the page, and other tokens, and tries what
// the page says of them.
func TestPageInService(t *testing.T) {
	policy := blocksOf(readFile(t, "../../docs/serve-access.md"), "toml")[0]
	tokens := map[string]string{"deploy": "", "oncall": ""}
	for name := range tokens {
		table := regexp.MustCompile(`(?m)^\[token\.` + name + `\]\nsha256 = .*$`)
		if !table.MatchString(policy) {
			t.Fatalf("the page has no token %s", name)
		}
		policy = table.ReplaceAllString(policy, "[token."+name+"]\n{"+name+"}")
	}
	s := startService(t, policy, tokens, nil)
	deploy, oncall := tokens["deploy"], tokens["oncall"]
	g := s.acquire(deploy, "deploy/shop", "job-1")
	acquire := func(token, name string, ttl int64) answer {
		return s.send("POST", wire.PathAcquire, token, wire.Acquire{Name: name, ID: longID("job-2"), TTL: ttl})
	}
	end := func(token, name string) answer {
		return s.send("POST", wire.PathBreak, token, wire.Break{Name: name, Token: g.Token, Reason: "x"})
	}
	for _, tt := range []struct {
		what   string
		got    answer
		status int
	}{
		{"a lock with another prefix", acquire(deploy, "build/shop", 1000), http.StatusForbidden},
		{"a TTL above max-ttl", acquire(deploy, "migrate/shop", 360_000), http.StatusForbidden},
		{"an operator who acquires", acquire(oncall, "x", 1000), http.StatusForbidden},
		{"a break without the verb", end(deploy, "deploy/shop"), http.StatusForbidden},
		{"a break by the name without the prefix", end(oncall, "deploy/shop"), http.StatusConflict},
		{"a break", end(oncall, "payments/deploy/shop"), http.StatusNoContent},
	} {
		if tt.got.status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.what, tt.got.status, tt.got.body, tt.status)
		}
	}
}

// TestAuditPage checks that the line of the page is one of the audit log.
func TestAuditPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve-access.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocksOf(string(page), "json") {
		d := json.NewDecoder(strings.NewReader(block))
		d.DisallowUnknownFields()
		var e Event
		if err := d.Decode(&e); err != nil || e.Event != EventBreak || e.Token == 0 {
			t.Errorf("event = %+v, %v, want the break of the page", e, err)
		}
	}
}

// blocksOf returns the blocks of a page that have a language.
func blocksOf(page, lang string) []string {
	var blocks []string
	for _, part := range strings.Split(page, "```"+lang+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}
