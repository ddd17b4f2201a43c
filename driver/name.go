package driver

import (
	"strings"
	"unicode/utf8"
)

const (
	// MaxName is the greatest length of a lock's name in bytes.
	MaxName = 512

	// MaxSlots is the greatest number of slots of a semaphore: databases keep it in 32 bits, and so do
	// some machines.
	MaxSlots = 1_000_000_000
)

// CheckName reports, as an error that matches [ErrInvalid], why name can't be the name of a
// lock. A valid name has 1 to [MaxName] bytes of valid UTF-8 without NUL. Nothing is folded or
// trimmed: case, spaces and punctuation count.
func CheckName(name string) error {
	switch {
	case name == "":
		return Invalidf("name: it is empty; a name has 1 to %d bytes", MaxName)
	case len(name) > MaxName:
		return Invalidf("name: it has %d bytes; at most %d are allowed", len(name), MaxName)
	case strings.IndexByte(name, 0) >= 0:
		return Invalidf("name %q: it contains a NUL byte", name)
	case !utf8.ValidString(name):
		return Invalidf("name %q: it is not valid UTF-8", name)
	}
	return nil
}
