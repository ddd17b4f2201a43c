package zklock

import "github.com/sniblock/snib/driver"

// A token is the zxid of the transaction that created a node, followed by indexBits bits: the
// index in the block of tokens that the hold has reserved. So the tokens of a hold lie between
// those of the nodes before and after it, whichever program has made these nodes.
const indexBits = 10

// maxBlock is how many tokens a hold can reserve.
const maxBlock = 1 << indexBits

// tokenOf returns the first token of the hold whose node was created by a transaction. The upper
// half of a zxid counts elections: 2,048 of them lead to 2^53, and two million to 2^63.
func tokenOf(zxid int64) uint64 { return uint64(zxid) << indexBits }

// blockSizeOf returns how many tokens a request can get.
func blockSizeOf(req driver.Request) int { return min(req.TokenBlock(), maxBlock) }
