package mysqllock_test

import (
	"strings"
	"testing"

	"github.com/sniblock/snib/mysqllock"
)

// The mapping from names to keys is a wire format.
func TestKeys(t *testing.T) {
	tests := []struct {
		name       string
		key        func(string) string
		give, want string
	}{
		{"Plain", mysqllock.NameKey, "job", "job"},
		{"PlainAll", mysqllock.NameKey, "a b/c:d~é"[:8], "a b/c:d~"},
		{"PlainLongest", mysqllock.NameKey, strings.Repeat("n", 64), strings.Repeat("n", 64)},
		{"Capital", mysqllock.NameKey, "Job", "snib-vvqxud65k7r7johlwj7w6ychbpcencvn5quq3nl6mexxkf3horoq"},
		{"Long", mysqllock.NameKey, strings.Repeat("n", 65), "snib-dy73nvkfq7lqu6kmayfcpbuobjm42hodwvktnj3dnfnpq3cbx54q"},
		{"SpaceAtEnd", mysqllock.NameKey, "job ", "snib-l2f2whqiskjrpx6seqzzv6semeevwkb7gwx7lby5wvsipbb4tyga"},
		{"NotASCII", mysqllock.NameKey, "日本", "snib-z4vl6dc34mtmxerkod4bmp4ra6oe3gvimvogb2wytlkulso6f2ja"},
		{"LooksHashed", mysqllock.NameKey, "snib-job", "snib-ek6n4ntrh47snln63zlvfryng6p3ektss4mgtmpz2yf5ekmryupa"},
		// From the tests of DistributedLock, except the last two.
		{"DotNet", mysqllock.DotNetKey, "ABC", "abczj4qr6tvn4a3kmgq4bukhowqyfrlxsb3"},
		{"DotNetEmpty", mysqllock.DotNetKey, "", "__empty__p6ad62yppho33ytkibum5wbqhqvbcsxa"},
		{"DotNetMixed", mysqllock.DotNetKey, "MyLock", "mylock6isuyjwnkexb4ujf4m7j37hstmoxe3vx"},
		{"DotNetPlain", mysqllock.DotNetKey, "my lock", "my lock"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.key(tt.give); got != tt.want {
				t.Errorf("key of %q = %q, want %q", tt.give, got, tt.want)
			}
			if got := tt.key(tt.give); len(got) > 64 {
				t.Errorf("key of %q has %d characters", tt.give, len(got))
			}
		})
	}
}
