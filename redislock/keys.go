package redislock

import (
	"strconv"
	"strings"
	"sync"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 1 << 14

// A namespace begins all keys and channels of a driver. It has no braces. See [Prefix].
type namespace string

// own returns a key or channel of the driver itself, which begins with "snib.".
func (n namespace) own(rest string) string { return string(n) + "snib." + rest }

// keysOf returns the keys of a lock: its own key, which is the namespace and the lock's name, and
// in the same slot the grants of its holders if it is shared, and its queue.
//
// The slot is that of the hash tag in the lock's key, if there is one; then the key follows the
// prefix unchanged. Otherwise the slot is that of the whole key, which becomes the tag. A brace in
// the key could end that tag too early; in this case the tag is a number that lies in the same
// slot.
//
// A name that begins like our own keys is not used as a key unchanged, because it could collide
// with a key of another lock.
func (n namespace) keysOf(name string) [3]string {
	key, own := string(n)+name, n.own("")
	open, tag, after := "{", key, "}"
	switch {
	case hashTag(key) != key:
		open, after = ":", ""
	case strings.Contains(key, "}"):
		tag, after = tagOf(slotOf(key)), "}:"+key
	}
	both := own + "r:" + open + tag + after + own + "q:" + open + tag + after // cheaper than two strings
	size := len(both) / 2
	keys := [3]string{key, both[:size], both[size:]}
	if strings.HasPrefix(name, "snib.") {
		keys[0] = own + "l:" + both[len(own)+len("r:"):size]
	}
	return keys
}

// nameIn returns the lock's name from one of its keys: the inverse of keysOf.
func (n namespace) nameIn(key string) (name string, ok bool) {
	inside, ok := strings.CutPrefix(key, string(n))
	if !ok {
		return "", false
	}
	rest, ok := strings.CutPrefix(inside, "snib.")
	if !ok {
		return inside, true
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
	name, ok = strings.CutPrefix(name, string(n))
	return name, ok && name != "" && n.keysOf(name)[1] == n.own("r:"+rest)
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
