package zklock

import (
	"fmt"

	"github.com/sniblock/snib/driver"
)

// A token is the zxid of the transaction that created a node, followed by indexBits bits: the
// index in the block of tokens that the hold has reserved. So the tokens of a hold lie between
// those of the nodes before and after it, whichever program has made these nodes.
const indexBits = 10

// maxBlock is how many tokens a hold can reserve.
const maxBlock = 1 << indexBits

// maxZxid is the greatest zxid that leaves room for the index in a number of 63 bits, which is what
// databases have. A zxid counts the elections of a leader in its upper 32 bits. After 2,048
// elections, tokens pass 2^53, up to which JSON and Lua are exact; after two million, 2^63.
const maxZxid = 1<<(63-indexBits) - 1

// tokenOf returns the first token of the hold whose node was created by a transaction.
func tokenOf(zxid int64) uint64 { return uint64(zxid) << indexBits }

// checkZxid returns an error if a zxid is too great for tokens.
func checkZxid(zxid int64) error {
	if zxid > maxZxid {
		return fmt.Errorf("ZooKeeper is at zxid %#x, and fencing tokens have room for those up to %#x: keep locks in a "+
			"younger ensemble", zxid, int64(maxZxid))
	}
	return nil
}

// blockSizeOf returns how many tokens a request can get.
func blockSizeOf(req driver.Request) int { return min(req.TokenBlock(), maxBlock) }
