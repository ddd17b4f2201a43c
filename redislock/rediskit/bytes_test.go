package rediskit_test

import (
	"encoding/json"
	"testing"

	"github.com/sniblock/snib/redislock/rediskit"
)

// TestBytes reads JSON as cjson writes it.
func TestBytes(t *testing.T) {
	for in, want := range map[string]string{
		`""`:                                "",
		`"grün"`:                            "grün",
		`"a\u0000\u001b[31m\"\\\/\n\u007f"`: "a\x00\x1b[31m\"\\/\n\x7f",
		"\"\xff\xfe\\u0000\x01\"":           "",
		"\"\xff\xfe\\u0001\"":               "\xff\xfe\x01",
		"\"ü\xff\\\"\\\\u00ff\"":            "ü\xff\"\\u00ff",
		"\"\ufffd\"":                        "\ufffd",
	} {
		var got rediskit.Bytes
		if err := json.Unmarshal([]byte(in), &got); string(got) != want {
			t.Errorf("Unmarshal(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}
