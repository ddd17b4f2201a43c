package fence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// encodeSlot returns a mark as a line: the checksum of its JSON, and the JSON.
func encodeSlot(m Mark) []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // impossible for a struct of strings and a number
	}
	return fmt.Appendf(nil, "%08x %s\n", checksum(text), text)
}

// decodeSlot is the inverse of encodeSlot. It reports whether there is a valid mark.
func decodeSlot(slot []byte) (m Mark, ok bool) {
	line, _, found := bytes.Cut(slot, []byte{'\n'})
	if !found || len(line) < 9 {
		return m, false
	}
	sum, text := string(line[:8]), line[9:]
	if sum != fmt.Sprintf("%08x", checksum(text)) || json.Unmarshal(text, &m) != nil {
		return Mark{}, false
	}
	return m, m.Check() == nil
}

func checksum(text []byte) uint32 { return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) }
