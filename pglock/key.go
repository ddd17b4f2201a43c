package pglock

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // others chose it, for keys and not for secrets
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"strings"
)

// sessionKeyClass is the first half of the keys that sessions lock to show that they live:
// "snib".
const sessionKeyClass = 0x736e6962

// A Key is one of PostgreSQL's advisory locks: a number of 64 bits, or a pair of 32. Keys of the
// two kinds never conflict. The zero Key is the number 0.
type Key struct {
	sql  string // the arguments in SQL; "" means $1::bigint
	args []any
}

// Wide returns the key that pg_advisory_lock(n) locks.
func Wide(n int64) Key { return Key{args: []any{n}} }

// Pair returns the key that pg_advisory_lock(a, b) locks.
func Pair(a, b int32) Key { return Key{sql: pairSQL, args: []any{a, b}} }

const pairSQL = "$1::int, $2::int"

// HashText returns the key that pg_advisory_lock(hashtext(text)) locks. The server computes the
// hash: the function is not documented, and may differ in another version of PostgreSQL.
func HashText(text string) Key { return Key{sql: "hashtext($1::text)::bigint", args: []any{text}} }

// HashTextExtended returns the key that pg_advisory_lock(hashtextextended(text, seed)) locks.
func HashTextExtended(text string, seed int64) Key {
	return Key{sql: "hashtextextended($1::text, $2::bigint)", args: []any{text, seed}}
}

// NameKey returns the default key of a name: the first 64 bits, big-endian, of the SHA-256 of
// "snib/1:" and the name, as a signed number.
func NameKey(name string) Key {
	sum := sha256.Sum256([]byte("snib/1:" + name))
	return Wide(int64(binary.BigEndian.Uint64(sum[:8])))
}

// RubyKey returns the key that the Ruby library with_advisory_lock uses for a name if it has no
// prefix configured.
func RubyKey(name string) Key {
	return Pair(int32(crc32.ChecksumIEEE([]byte(name))&0x7fffffff), 0)
}

// DotNetKey returns the key that the .NET library DistributedLock uses for a name.
func DotNetKey(name string) Key {
	if len(name) <= 9 && strings.IndexFunc(name, func(r rune) bool { return r >= 0x80 }) < 0 {
		return dotNetText(name)
	}
	if n, err := strconv.ParseUint(name, 16, 64); err == nil && len(name) == 16 {
		return Wide(int64(n))
	}
	if a, b, ok := strings.Cut(name, ","); ok && len(a) == 8 && len(b) == 8 {
		high, err1 := strconv.ParseUint(a, 16, 32)
		low, err2 := strconv.ParseUint(b, 16, 32)
		if err1 == nil && err2 == nil {
			return Pair(int32(uint32(high)), int32(uint32(low)))
		}
	}
	sum := sha1.Sum([]byte(name))
	return Wide(int64(binary.LittleEndian.Uint64(sum[:8])))
}

// dotNetText packs 7 bits of each character, and pads them with a zero and then ones.
func dotNetText(name string) Key {
	var bits uint64
	for i := range 9 {
		bits <<= 7
		switch {
		case i < len(name):
			bits |= uint64(name[i])
		case i == len(name):
			bits |= 0x3f
		default:
			bits |= 0x7f
		}
	}
	bits <<= 1
	if len(name) < 9 {
		bits |= 1
	}
	return Pair(int32(uint32(bits>>32)), int32(uint32(bits)))
}

// An expression is a part of a statement, with its arguments.
type expression struct {
	sql  string
	args []any
}

// call returns a call of one of the advisory lock functions with the key.
func (k Key) call(function string, shared bool) expression {
	if shared {
		function += "_shared"
	}
	k = k.orZero()
	return expression{function + "(" + k.arguments() + ")", k.args}
}

// orZero returns the number 0 for the zero Key.
func (k Key) orZero() Key {
	if k.args == nil {
		return Wide(0)
	}
	return k
}

// arguments returns the arguments of the key in SQL.
func (k Key) arguments() string { return cmp.Or(k.sql, "$1::bigint") }
