package redislock

import (
	"strconv"
	"strings"
	"sync"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 1 << 14

// keysOf returns the keys of a lock: its own key, which is the lock's name, and in the same
// slot the grants of its holders if it is shared, its queue, and the requests of its waiters.
//
// The slot is that of the name's hash tag, if there is one; then the name follows the prefix
// unchanged. Otherwise the slot is that of the whole name, which becomes the tag. A brace in
// the name could end that tag too early; in this case the tag is a number that lies in the same
// slot.
//
// A name that begins like our own keys is not used as a key unchanged, because it could collide
// with a key of another lock.
func keysOf(name string) [4]string {
	open, tag, after := "{", name, "}"
	switch {
	case hashTag(name) != name:
		open, after = ":", ""
	case strings.Contains(name, "}"):
		tag, after = tagOf(slotOf(name)), "}:"+name
	}
	const grants, queue, requests = "snib.r:", "snib.q:", "snib.w:"
	n := len(grants) + len(open) + len(tag) + len(after)
	all := grants + open + tag + after + queue + open + tag + after + requests + open + tag + after
	keys := [4]string{name, all[:n], all[n : 2*n], all[2*n:]}
	if strings.HasPrefix(name, "snib.") {
		keys[0] = "snib.l:" + all[len(grants):n]
	}
	return keys
}

// nameIn returns the lock's name from one of its keys but the last: the inverse of keysOf.
func nameIn(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, "snib.")
	if !ok {
		return key, true
	}
	if len(rest) < 2 || !strings.ContainsRune("lqr", rune(rest[0])) || rest[1] != ':' {
		return "", false
	}
	rest = rest[2:]
	switch {
	case strings.HasPrefix(rest, ":"):
		name = rest[1:]
	case strings.HasSuffix(rest, "}") && strings.Count(rest, "}") == 1:
		name = strings.TrimSuffix(strings.TrimPrefix(rest, "{"), "}")
	default:
		_, name, _ = strings.Cut(rest, "}:")
	}
	return name, name != "" && keysOf(name)[1][len("snib.r:"):] == rest
}

// hashTag returns the part of a key that determines its slot: the text between the first "{"
// and the next "}", if it is not empty, and otherwise the whole key.
func hashTag(key string) string {
	_, after, found := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(after, "}"); found && closed && tag != "" {
		return tag
	}
	return key
}

// slotOf returns the hash slot of a key
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
func slotOf(key string) uint16 {
	var crc uint16 // CRC-16/XMODEM
	tag := hashTag(key)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}

// tagOf returns the hash tag that stands for a slot where a name can't: the least number whose
// digits lie in the slot.
func tagOf(slot uint16) string { return strconv.Itoa(leastNumbers()[slot]) }

// leastNumbers returns the least number in each slot. Finding one takes a millisecond, and
// finding all not much longer.
var leastNumbers = sync.OnceValue(func() *[slots]int {
	least := new([slots]int)
	for i := range least {
		least[i] = -1
	}
	for n, found := 0, 0; found < slots; n++ {
		if slot := slotOf(strconv.Itoa(n)); least[slot] < 0 {
			least[slot] = n
			found++
		}
	}
	return least
})
