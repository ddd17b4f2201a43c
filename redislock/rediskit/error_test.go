package rediskit_test

import (
	"testing"

	"github.com/sniblock/snib/redislock/rediskit"
)

// TestIsDenied has what Redis 6.2, 7.0 and 8.2 and Valkey 9.1 answer to users with few rights.
func TestIsDenied(t *testing.T) {
	tests := []struct {
		text string
		want bool
	}{
		{"NOAUTH Authentication required.", true},
		{"WRONGPASS invalid username-password pair or user is disabled.", true},
		{"NOPERM this user has no permissions to run the 'eval' command or its subcommand", true},
		{"NOPERM No permissions to access a key", true},
		{"DENIED Redis is running in protected mode", true},
		{"ERR Error running script (call to f_caee): @user_script:1: @user_script: 1: The user executing the script " +
			"can't run this command or subcommand", true},
		{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments " +
			"script: b51a, on @user_script:1.", true},
		{"ERR ACL failure in script: User readonly has no permissions to run the 'set' command script: caee, on " +
			"@user_script:1.", true},
		{"ERR ACL failure in script: User readonly has no permissions to run the 'set' command script: on @user_script:1.",
			true},
		{"ERR Error running script (call to f_caee): @user_script:1: -NOPERM this user has no permissions", true},
		{"ERR unknown command 'SET'", false},
		{"READONLY You can't write against a read only replica.", false},
		{"ERR value is not an integer: NOPERMISSION", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := rediskit.IsDenied(tt.text); got != tt.want {
			t.Errorf("IsDenied(%q) = %v, want %v", tt.text, got, tt.want)
		}
	}
}
