package driver

import "time"

// NextToken returns the next fencing token for stores without a log position of their own: one
// more than the last token, or the store's clock in microseconds if that is greater. The stored
// number orders tokens while the store remembers it, whatever its clock does; the clock orders
// them across a loss of memory.
//
// Tokens stay below 2^53 until the year 2255, so they are exact in Lua, JavaScript and JSON.
func NextToken(last uint64, clock time.Time) uint64 {
	return max(last+1, uint64(max(clock.UnixMicro(), 0)))
}
