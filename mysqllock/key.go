package mysqllock

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"strings"
	"unicode/utf16"
)

// longestKey is how many characters of a name GET_LOCK accepts in MySQL. MariaDB accepts more.
const longestKey = 64

// NameKey returns the default key of a lock: the name that GET_LOCK locks for it. The key is the
// name itself if MySQL and MariaDB agree on that: it has at most 64 characters, all of them ASCII
// from space to ~ but no capital letters, no space at either end, and no "snib-" at its
// beginning. All other names become "snib-" and the SHA-256 of the name in base 32, without
// padding, in small letters.
func NameKey(name string) string {
	if isPlain(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "snib-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

func isPlain(name string) bool {
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return name != "" && len(name) <= longestKey && strings.TrimSpace(name) == name && !strings.HasPrefix(name, "snib-")
}

// DotNetKey returns the key that the .NET library DistributedLock uses for a name.
func DotNetKey(name string) string {
	units := utf16.Encode([]rune(name))
	if lower := strings.ToLower(name); lower == name && name != "" && len(units) <= longestKey {
		return name
	}
	base := name
	if base == "" {
		base = "__empty__"
	}
	head := utf16.Encode([]rune(strings.ToLower(base)))
	sum := sha512.Sum512([]byte(name))
	return string(utf16.Decode(head[:min(len(head), 32)])) + dotNetBase32(sum[:20])
}

// dotNetBase32 encodes the bits of each byte from the lowest up.
func dotNetBase32(bytes []byte) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	var out strings.Builder
	var bits, have uint
	for _, b := range bytes {
		bits |= uint(b) << have
		for have += 8; have >= 5; have -= 5 {
			out.WriteByte(alphabet[bits&31])
			bits >>= 5
		}
	}
	return out.String()
}
