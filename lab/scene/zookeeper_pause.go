package scene

import (
	"time"

	"github.com/sniblock/snib/lab/pattern"
)

// zookeeperPause is a client of ZooKeeper that stands still while its session ends, and then
// writes.
func zookeeperPause() Scene {
	play := func(p pattern.Name) func(*Stage) {
		return func(s *Stage) {
			z := s.Zookeeper()
			a, b := z.Client("A", p, 3*time.Second), z.Client("B", p, 30*time.Second)
			s.playPause(a, b, "write", func() { z.AwaitSessionEnd(a) })
		}
	}
	return Scene{
		Name:  "zookeeper-pause",
		Title: "a session of ZooKeeper ends in a pause",
		Story: "Each client makes an ephemeral sequential node, and the smallest number holds the lock. The node lives as long as " +
			"the session. A is paused for longer than its session timeout of 3 s, just before it writes. The stock is a file.",
		Clients: []string{"A", "B"},
		Server:  "zookeeper",
		Broken:  Act{Title: "the lock of go-zookeeper is all that protects the stock", play: play(pattern.Ephemeral), want: Damage{Lost: 1}},
		Right:   Act{Title: "snib: the node's transaction id is the token, and the stock refuses A's", play: play(pattern.FencedInFile)},
		Advice: "No ensemble can stop a client that does not know yet that its session is over: let the resource check the transaction id " +
			"of the node as a fencing token, as snib's zklock and package fence do.",
		Page: "docs/from-setnx.md#zookeeper-pause",
	}
}
