package wire_test

import (
	"testing"

	"github.com/sniblock/snib/remotelock/wire"
)

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:80": true, "127.0.0.1": true, "127.1.2.3:80": true,
		"::1": true, "[::1]": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"": false, ":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false,
		"localhost.example.com": false, "127.0.0.1.example.com:80": false,
	} {
		if got := wire.IsLoopback(host); got != want {
			t.Errorf("IsLoopback(%q) = %t, want %t", host, got, want)
		}
	}
}
