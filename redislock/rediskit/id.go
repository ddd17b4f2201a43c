package rediskit

import (
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// CheckID rejects the id of a request that can't be stored unchanged, with [driver.ErrInvalid]. The
// error does not show the id, which is a secret.
func CheckID(id string) error {
	if !utf8.ValidString(id) {
		return driver.Invalidf("id: it is not valid UTF-8")
	}
	return nil
}
