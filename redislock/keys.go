package redislock

import (
	"strconv"
	"strings"
	"sync"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 1 << 14

// keysOf returns the keys of a lock: its own, whose name is the lock's, and beside it, in the same slot, its record, its
// queue, and the requests of those who wait.
//
// The slot is that of the name's hash tag, if it has one, so that name follows the prefix as it is. Else it is that of the
// whole name, which becomes the tag; unless a brace in it would end the tag before its time: then a number of the same slot is
// the tag.
//
// A name that begins like our own keys does not become a key as it is, or it could be another lock's.
func keysOf(name string) [4]string {
	open, tag, after := "{", name, "}"
	switch {
	case hashTag(name) != name:
		open, after = ":", ""
	case strings.Contains(name, "}"):
		tag, after = tagOf(slotOf(name)), "}:"+name
	}
	const record, queue, requests = "snib.r:", "snib.q:", "snib.w:"
	n := len(record) + len(open) + len(tag) + len(after)
	all := record + open + tag + after + queue + open + tag + after + requests + open + tag + after
	keys := [4]string{name, all[:n], all[n : 2*n], all[2*n:]}
	if strings.HasPrefix(name, "snib.") {
		keys[0] = "snib.l:" + all[len(record):n]
	}
	return keys
}

// nameIn returns the lock's name from the key of its record or queue: the inverse of keysOf.
func nameIn(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, "snib.r:")
	if !ok {
		if rest, ok = strings.CutPrefix(key, "snib.q:"); !ok {
			return "", false
		}
	}
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

// hashTag returns the part of a key from which its slot is computed: what stands between the first brace and the next one
// that closes, if there is anything, and else the key.
func hashTag(key string) string {
	_, after, found := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(after, "}"); found && closed && tag != "" {
		return tag
	}
	return key
}

// slotOf returns the hash slot of a key (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
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

// tagOf returns the hash tag that stands for a slot where no name can: the least number whose digits lie in it.
func tagOf(slot uint16) string { return strconv.Itoa(leastNumbers()[slot]) }

// leastNumbers returns the least number in each slot. To look for one takes a millisecond, and for all not much longer.
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
