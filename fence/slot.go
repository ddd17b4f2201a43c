package fence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeSlot writes a mark as a line: the checksum of its JSON, and that.
func encodeSlot(m Mark) []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // a struct of strings and a number
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text)
}

// decodeSlot is the inverse, and reports whether there is a mark at all.
func decodeSlot(slot []byte) (m Mark, ok bool) {
	line, _, found := bytes.Cut(slot, []byte{'\n'})
	if !found || len(line) < 9 {
		return m, false
	}
	sum, text := string(line[:8]), line[9:]
	if sum != fmt.Sprintf("%08x", crc32.Checksum(text, castagnoli)) || json.Unmarshal(text, &m) != nil {
		return Mark{}, false
	}
	return m, m.Check() == nil
}
