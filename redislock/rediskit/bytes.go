package rediskit

import (
	"encoding/json"
	"unicode/utf8"
)

// Bytes is a value from Redis in JSON that a script made with cjson. cjson escapes control
// characters, and copies all other bytes, also those that are no UTF-8. Package json would replace
// these, and the result could not be compared with the value in Redis.
type Bytes string

// UnmarshalJSON implements [json.Unmarshaler].
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var text string
	if utf8.Valid(data) {
		err := json.Unmarshal(data, &text)
		*b = Bytes(text)
		return err
	}
	wide := make([]rune, len(data)) // each byte as the character of that number
	for i, c := range data {
		wide[i] = rune(c)
	}
	if err := json.Unmarshal([]byte(string(wide)), &text); err != nil {
		return err
	}
	raw := make([]byte, 0, len(text))
	for _, r := range text {
		raw = append(raw, byte(r)) // cjson writes no escape above \u007f
	}
	*b = Bytes(raw)
	return nil
}
