package snib

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
)

// TestDefaultsPage compares the numbers on docs/defaults.md with those of the code.
func TestDefaultsPage(t *testing.T) {
	page, err := os.ReadFile("docs/defaults.md")
	if err != nil {
		t.Fatal(err)
	}
	short := strings.NewReplacer("1m0s", "1 min", "30s", "30 s", "5s", "5 s", "50ms", "50 ms", "2ms", "2 ms")
	for what, value := range map[string]string{
		"TTL of a lease":                               defaultTTL.String() + ",",
		"the holder's end before the store's":          fmt.Sprintf("%d %% of the TTL and %v |", 100/driver.Drift, driver.Margin),
		"retries while the store is unavailable":       driver.RetryTimeout.String() + " |",
		"one answer of the store":                      driver.AnswerTimeout.String() + " |",
		"return after the end of the caller's context": driver.CancelTimeout.String() + " |",
		"Release":                      releaseTimeout.String() + " |",
		"longest name, and longest id": fmt.Sprintf("%d bytes |", driver.MaxName),
	} {
		if row := "| " + what + " | " + short.Replace(value); !strings.Contains(string(page), row) {
			t.Errorf("docs/defaults.md has no row that begins with %q", row)
		}
	}
}
