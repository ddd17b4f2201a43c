package pglock

import (
	"fmt"
	"strings"
	"testing"
)

// TestKeys checks the test vectors of the wire format, and those of other libraries.
func TestKeys(t *testing.T) {
	tests := []struct {
		rule string
		key  func(string) Key
		name string
		want string
	}{
		{"Name", NameKey, "job", "[-7504860721436903378]"},
		{"Name", NameKey, "日本語", "[-5327152105618399071]"},
		{"DotNet", DotNetKey, "", "[2147483647 -1]"},
		{"DotNet", DotNetKey, "a", "[-1023410177 -1]"},
		{"DotNet", DotNetKey, "job", "[-708897793 -1]"},
		{"DotNet", DotNetKey, "MyLock", "[-1679399172 2061500415]"},
		{"DotNet", DotNetKey, "123456789", "[1657379654 -1382303630]"},
		{"DotNet", DotNetKey, "MyLockName", "[4062898426641073528]"},
		{"DotNet", DotNetKey, strings.Repeat("漢", 18), "[-5707277204051710361]"},
		{"DotNet", DotNetKey, "00000000ffffffff", "[4294967295]"},
		{"DotNet", DotNetKey, "00000001,ffffffff", "[1 -1]"},
		{"Ruby", RubyKey, "job", "[2077810936 0]"},
		{"Ruby", RubyKey, "MyLock", "[1883230595 0]"},
	}
	for _, tt := range tests {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			if got := fmt.Sprint(tt.key(tt.name).args); got != tt.want {
				t.Errorf("key of %q = %s, want %s", tt.name, got, tt.want)
			}
		})
	}
}
