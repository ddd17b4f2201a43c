package access

import (
	"os"
	"strings"
	"testing"
)

// TestPolicyPage checks that the policies of the page are accepted.
func TestPolicyPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve-access.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, part := range strings.Split(string(page), "```toml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	if len(blocks) != 2 {
		t.Fatalf("the page has %d policies, want 2", len(blocks))
	}
	p, err := ParsePolicy(blocks[1] + blocks[0]) // a setting of the file stands before its tables
	if err != nil {
		t.Fatal(err)
	}
	if len(p.tokens) != 2 || len(p.certificates) != 1 || len(p.issuers) != 1 || len(p.proxies) != 1 || p.namespaces["payments"].Quota.Locks != 500 {
		t.Errorf("policy = %+v, want what the page shows", p)
	}
}
