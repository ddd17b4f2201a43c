package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// zookeeperPause is a client of ZooKeeper that stands still while its session ends, and then
// writes.
func zookeeperPause() Demo {
	run := func(p pattern.Name) func(*Director) {
		return func(s *Director) {
			z := s.Zookeeper()
			a, b := z.Client("A", p, 3*time.Second), z.Client("B", p, 30*time.Second)
			s.runPause(a, b, "write", func() { z.AwaitSessionEnd(a) })
		}
	}
	return Demo{
		Name:  "zookeeper-pause",
		Title: "a session of ZooKeeper ends in a pause",
		Story: "Each client makes an ephemeral sequential node, and the smallest number holds the lock. The node lives as long as " +
			"the session. A is paused for longer than its session timeout of 3 s, just before it writes. The stock is a file.",
		Clients: []string{"A", "B"},
		Server:  "zookeeper",
		Broken:  Variant{Title: "the lock of go-zookeeper is all that protects the stock", run: run(pattern.Ephemeral), want: Damage{Lost: 1}},
		Right:   Variant{Title: "snib: the node's transaction id is the token, and the stock refuses A's", run: run(pattern.FencedInFile)},
		Advice: "No ensemble can stop a client that does not know yet that its session is over: let the resource check the transaction id " +
			"of the node as a fencing token, as snib's zklock and package fence do.",
		Page: "docs/from-setnx.md#zookeeper-pause",
	}
}
