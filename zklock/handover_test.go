package zklock_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// blockRequest returns the request of a caller who hands holds over by itself.
func blockRequest(name, id string, tokens int) driver.Request {
	req := request(name, id)
	req.Tokens = tokens
	return req
}

// TestBlock reserves tokens: they begin with the zxid of the node, and end before those of the
// next node.
func TestBlock(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree := newTree(t, server.Addr())
	d, other := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	var last uint64
	for _, tt := range []struct{ asked, want int }{{0, 1}, {1, 1}, {10, 10}, {1 << 10, 1 << 10}, {1<<10 + 1, 1 << 10}} {
		l := acquire(t, d, blockRequest("block", "a", tt.asked))
		g := l.Grant()
		_, stat, err := tree.Exists(tree.nodeOf("/snib/block", g.Token))
		if err != nil {
			t.Fatal(err)
		}
		waiter := livetest.Waiting(t, other, request("block", "b"))
		if g.Tokens != tt.want || g.TellsWanted != (tt.want > 1) {
			t.Errorf("asked for %d tokens, got %d, and TellsWanted %v; want %d", tt.asked, g.Tokens, g.TellsWanted, tt.want)
		}
		final := g.Token + uint64(g.Tokens) - 1
		if first, end := int64(g.Token>>10), int64(final>>10); first != stat.Czxid || end != stat.Czxid {
			t.Errorf("the tokens %d to %d are of the zxids %d to %d, want %d", g.Token, final, first, end, stat.Czxid)
		}
		if g.Token <= last {
			t.Errorf("Token = %d after %d", g.Token, last)
		}
		release(t, l)
		next := waiter.Get(t)
		// Its node was created right after the first, while the block was in use.
		if next.Grant().Token <= final {
			t.Errorf("Token = %d after the block from %d to %d", next.Grant().Token, g.Token, final)
		}
		last = next.Grant().Token
		release(t, next)
	}
}

// TestWanted has others queue behind the holder of a block.
func TestWanted(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree := newTree(t, server.Addr())
	tests := []struct {
		name  string
		queue func(t *testing.T, name string) (leave func())
	}{
		{"Driver", func(t *testing.T, name string) func() {
			w := livetest.Waiting(t, newDriver(t, []string{server.Addr()}), request(name, "other"))
			return func() { release(t, w.Get(t)) }
		}},
		{"Curator", func(t *testing.T, name string) func() {
			made, err := tree.Create("/snib/"+name+"/_c_stranger-lock-", nil, zk.FlagEphemeralSequential,
				zk.WorldACL(zk.PermAll))
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := tree.Delete(made, -1); err != nil {
					t.Fatal(err)
				}
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDriver(t, []string{server.Addr()})
			first, firstWanted := livetest.WithWanted(blockRequest(tt.name, "first", 10))
			second, secondWanted := livetest.WithWanted(blockRequest(tt.name, "second", 10))
			alone, aloneWanted := livetest.WithWanted(blockRequest(tt.name, "alone", 10))
			l := acquire(t, d, first)
			waiter := livetest.Waiting(t, d, second)
			leave := tt.queue(t, tt.name)
			checkWanted(t, firstWanted, "one that came")
			release(t, l)
			l = waiter.Get(t)
			checkWanted(t, secondWanted, "one that was there")
			release(t, l)
			leave()
			l = acquire(t, d, alone)
			release(t, acquire(t, d, blockRequest(tt.name+" of another name", "a", 10)))
			select {
			case <-aloneWanted:
				t.Error("the holder of a block is told of one that has gone")
			default:
			}
			release(t, l)
		})
	}
}

// checkWanted checks that a holder learns that it is wanted.
func checkWanted(t *testing.T, wanted <-chan struct{}, by string) {
	t.Helper()
	select {
	case <-wanted:
	case <-time.After(livetest.Patience):
		t.Errorf("the holder of a block is not told of %s", by)
	}
}
