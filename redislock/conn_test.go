package redislock_test

import (
	"testing"

	"github.com/sniblock/snib/redislock"
)

// TestReplyErrorText has what Redis 7.0 and 8.2 and Valkey 9.1 answer when a script's command
// fails. The text names the missing permission, and not the script.
func TestReplyErrorText(t *testing.T) {
	t.Parallel()
	const (
		missing = "ERR ACL failure in script: User readonly has no permissions to run the 'set' command"
		old     = "ERR The user executing the script can't run this command or subcommand"
		digest  = "756928dd1246249109cfe8475bfa267e967ea948"
	)
	tests := []struct{ name, text, want string }{
		{"Redis7", old + " script: " + digest + ", on @user_script:1.", old},
		{"Redis8", missing + " script: " + digest + ", on @user_script:1.", missing},
		{"Valkey91", missing + " script: on @user_script:1.", missing},
		{"NoScript", "NOPERM No permissions to access a key", "NOPERM No permissions to access a key"},
	}
	for _, tt := range tests {
		if got := (&redislock.ReplyError{Text: tt.text}).Error(); got != tt.want {
			t.Errorf("%s: Error of %q = %q, want %q", tt.name, tt.text, got, tt.want)
		}
	}
}
