package redislock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// TestSlots checks slots against the answers of CLUSTER KEYSLOT.
func TestSlots(t *testing.T) {
	tests := []struct {
		key  string
		want uint16
	}{
		{"123456789", 12739}, // the check value of CRC-16/XMODEM: 0x31C3
		{"foo", 12182},
		{"", 0},
		{"bar", 5061},
		{"hello", 866},
		{"{user1000}.following", 3443},
		{"{user1000}.followers", 3443},
		{"user1000", 3443},
		{"foo{}{bar}", 8363}, // an empty tag does not count, and ends the search
		{"foo{{bar}}zap", 4015},
		{"{bar", 4015},
		{"foo{bar}{zap}", 5061},
	}
	for _, tt := range tests {
		if got := slotOf(tt.key); got != tt.want {
			t.Errorf("slotOf(%q) = %d, want %d", tt.key, got, tt.want)
		}
	}
}

// vectors are the wire format, version 2. They don't change.
var vectors = []struct {
	name string
	keys [3]string
	slot uint16
}{
	{"foo", [3]string{"foo", "snib.r:{foo}", "snib.q:{foo}"}, 12182},
	{"invoices/2026-11", [3]string{
		"invoices/2026-11", "snib.r:{invoices/2026-11}", "snib.q:{invoices/2026-11}",
	}, 10528},
	{":foo", [3]string{":foo", "snib.r:{:foo}", "snib.q:{:foo}"}, 11220},
	{" ", [3]string{" ", "snib.r:{ }", "snib.q:{ }"}, 9314},
	{"Größe ☃ 🔒", [3]string{"Größe ☃ 🔒", "snib.r:{Größe ☃ 🔒}", "snib.q:{Größe ☃ 🔒}"}, 13720},

	// With a hash tag: unchanged after the prefix.
	{"{foo}", [3]string{"{foo}", "snib.r::{foo}", "snib.q::{foo}"}, 12182},
	{"{user1000}.following", [3]string{
		"{user1000}.following", "snib.r::{user1000}.following", "snib.q::{user1000}.following",
	}, 3443},
	{"a{foo}b}c", [3]string{"a{foo}b}c", "snib.r::a{foo}b}c", "snib.q::a{foo}b}c"}, 12182},
	{"foo{{bar}}zap", [3]string{"foo{{bar}}zap", "snib.r::foo{{bar}}zap", "snib.q::foo{{bar}}zap"}, 4015},

	// With a brace that opens but does not close: the name is the tag.
	{"a{b", [3]string{"a{b", "snib.r:{a{b}", "snib.q:{a{b}"}, 13340},
	{"{", [3]string{"{", "snib.r:{{}", "snib.q:{{}"}, 4092},

	// Like one of our own keys: the lock's own key gets a prefix.
	{"snib.r:{foo}", [3]string{"snib.l::snib.r:{foo}", "snib.r::snib.r:{foo}", "snib.q::snib.r:{foo}"}, 12182},
	{"snib.m", [3]string{"snib.l:{snib.m}", "snib.r:{snib.m}", "snib.q:{snib.m}"}, 6724},

	// With a brace that would close the tag too early: a number of the name's slot is the tag.
	{"}", [3]string{"}", "snib.r:{5305}:}", "snib.q:{5305}:}"}, 12090},
	{"a}b", [3]string{"a}b", "snib.r:{20658}:a}b", "snib.q:{20658}:a}b"}, 7866},
	{"{}", [3]string{"{}", "snib.r:{42430}:{}", "snib.q:{42430}:{}"}, 15257},
	{"foo{}{bar}", [3]string{"foo{}{bar}", "snib.r:{10168}:foo{}{bar}", "snib.q:{10168}:foo{}{bar}"}, 8363},
}

func TestKeys(t *testing.T) {
	for _, v := range vectors {
		if got := namespace("").keysOf(v.name); got != v.keys {
			t.Errorf("keysOf(%q) = %q, want %q", v.name, got, v.keys)
		}
		if got := slotOf(v.name); got != v.slot {
			t.Errorf("slotOf(%q) = %d, want %d", v.name, got, v.slot)
		}
		for _, n := range []namespace{"", "app:", "ä"} {
			if err := checkKeys(n, v.name); err != "" {
				t.Error(err)
			}
		}
	}
}

// TestTags finds a tag for each slot, because a name may lie in any slot.
func TestTags(t *testing.T) {
	for slot := range uint16(slots) {
		if tag := tagOf(slot); slotOf(tag) != slot || slotOf("snib.m:{"+tag+"}") != slot {
			t.Fatalf("tagOf(%d) = %q, whose slot is %d", slot, tag, slotOf(tag))
		}
	}
}

// TestKeysApart checks that no two locks share a key, whatever their names, and that no lock
// has a key in which the store describes itself.
func TestKeysApart(t *testing.T) {
	names := []string{
		"x", ":x", "{x}", ":{x}", "}x", "{}x", "x}", "{x", "x{", "x{}", "{{x}}", "{x}}", "{x}:x", "{x}:{x}", "x}:x", "1}:x",
		"{1}:x", ":{1}:x",
		"snib.r:{x}", "snib.q:{x}", "snib.r::{x}", "snib.q::{x}", "snib.m", "snib.m:{1}",
		"snib.", "snib.l:{x}",
		"snib.r:{snib.r:{x}}", "snib.l:{snib.m}", "snib.l::{x}", "snib", "Snib.m",
	}
	for _, name := range names[:len(names):len(names)] {
		keys := namespace("").keysOf(name)
		names = append(names, keys[:]...)
	}
	of := map[string]string{"snib.m": "the store", "snib.m:{1}": "the store"}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		for _, key := range namespace("").keysOf(name) {
			if other, taken := of[key]; taken {
				t.Errorf("%q and %q share the key %q", name, other, key)
			}
			of[key] = name
		}
	}
}

// checkKeys returns what is wrong with the keys of a name, or "".
func checkKeys(n namespace, name string) string {
	keys := n.keysOf(name)
	for _, key := range keys {
		if slotOf(key) != slotOf(string(n)+name) {
			return fmt.Sprintf("the slot of key %q is not that of the lock %q", key, name)
		}
		if !strings.HasPrefix(key, string(n)) || strings.HasPrefix(key, n.own("m")) {
			return fmt.Sprintf("the key %q of lock %q belongs to the store, or is outside of the namespace", key, name)
		}
		if got, ok := n.nameIn(key); !ok || got != name {
			return fmt.Sprintf("nameIn(%q) = %q, %v, want %q", key, got, ok, name)
		}
	}
	return ""
}

func FuzzKeys(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.name, v.keys[1])
	}
	f.Add("snib.r:{x}", "x")
	f.Add("x}", "{}x}")
	f.Add("snib.r::{x}", "snib.q:{1}:x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if driver.CheckName(a) != nil || !utf8.ValidString(a) {
			return
		}
		if err := checkKeys("", a); err != "" {
			t.Fatal(err)
		}
		if name, ok := namespace("").nameIn(b); ok {
			if keys := namespace("").keysOf(name); !slices.Contains(keys[:], b) {
				t.Fatalf("nameIn(%q) = %q, whose keys are %q", b, name, keys)
			}
		}
		if a == b || driver.CheckName(b) != nil {
			return
		}
		for i, x := range namespace("").keysOf(a) {
			for j, y := range namespace("").keysOf(b) {
				if x == y {
					t.Fatalf("%q and %q share the key %q (%d, %d)", a, b, x, i, j)
				}
			}
		}
	})
}
