package etcdlock

import (
	"fmt"

	"github.com/sniblock/snib/driver"
)

// A token is the create revision of a hold's key, and in its last 16 bits the place in the block of tokens that the hold has
// reserved. So the tokens of a hold lie between those of the keys before and after it, whoever has put these.
const places = 16

// maxBlock is how many tokens a hold can reserve.
const maxBlock = 1 << places

// maxRevision is the greatest revision that leaves room for the places in a number of 63 bits, which is what databases have. At a
// thousand writes a second etcd gets there in 4,000 years, and past 2^53, up to which JSON and Lua are exact, in four.
const maxRevision = 1<<(63-places) - 1

// tokenOf returns the first token of the hold whose key was created at a revision.
func tokenOf(revision int64) uint64 { return uint64(revision) << places }

// Revision returns the create revision of the lock's key, the number that etcd itself and package concurrency know a hold
// by, from a fencing token of that hold: for conditions, or comparisons, of the caller's own. It answers for any number, and asks
// nobody. For a transaction of the holder's, see [Driver.IsOwner].
func Revision(token uint64) int64 { return int64(token >> places) }

// checkRevision reports a revision that is too great for tokens.
func checkRevision(revision int64) error {
	if revision > maxRevision {
		return fmt.Errorf("etcd is at revision %d, and fencing tokens have room for revisions up to %d: keep locks in a younger cluster",
			revision, int64(maxRevision))
	}
	return nil
}

// blockOf returns how many tokens a request can be given.
func blockOf(req driver.Request) int { return min(max(req.Tokens, 1), maxBlock) }
