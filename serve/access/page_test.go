package access

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
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
