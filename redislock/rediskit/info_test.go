package rediskit_test

import (
	"maps"
	"testing"

	"github.com/sniblock/snib/redislock/rediskit"
)

func TestParseInfo(t *testing.T) {
	got := rediskit.ParseInfo(
		"# Server\r\nredis_version:7.0.15\r\nexecutable:C:\\redis\r\nempty:\r\n\r\n# Keyspace: " +
			"all\r\ndb0:keys=1,expires=0\r\n")
	want := rediskit.Info{"redis_version": "7.0.15", "executable": `C:\redis`, "empty": "", "db0": "keys=1,expires=0"}
	if !maps.Equal(got, want) {
		t.Errorf("ParseInfo = %q, want %q", got, want)
	}
}

func TestAtLeast(t *testing.T) {
	tests := []struct {
		version string
		want    bool // AtLeast(6, 2)
	}{
		{"6.2", true}, {"6.2.0", true}, {"6.10.1", true}, {"7.0.15", true}, {"10.0.0", true}, {"7.2-rc1.3", false},
		{"6.0.16", false}, {"5.9.9", false}, {"6", false}, {"", false}, {"six.two", false}, {"255.255.255", true},
	}
	for _, tt := range tests {
		if got := (rediskit.Info{"redis_version": tt.version}).AtLeast(6, 2); got != tt.want {
			t.Errorf("%q is 6.2 or later: %v, want %v", tt.version, got, tt.want)
		}
	}
}
