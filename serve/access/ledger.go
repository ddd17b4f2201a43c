package access

import (
	"crypto/sha256"
	"fmt"
)

// A holdID stands for the id of a hold, or of an acquisition that waits, and its lock, without
// being a secret.
type holdID [sha256.Size]byte

func newHoldID(name, id string) holdID {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q", name, id))
}
