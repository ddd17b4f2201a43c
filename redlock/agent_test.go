package redlock

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// TestAgent admits a node that hangs at first. It is asked soon after it goes on, and again when
// MaxTTL is over, or maxSpread later. While a third node hangs, all counters would be read in vain.
func TestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := newDriver([]*node{{address: "a:1"}, {address: "b:1"}, {address: "c:1"}}, []Option{MaxTTL(longestTTL)})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		well := map[byte]string{codeShowNode: `{"run":"r","admitted":"r"}`, codeCounters: "1"}
		answers := []map[byte]string{{codeShowNode: `{"run":"r","mark":"m"}`, codeCounters: "0", codeAdmit: "o"}, well, well}
		var goOn [3]chan struct{}
		asked := make(chan byte, 100) // what the first node answers
		for i, n := range d.nodes {
			n.dial = func(context.Context) (rueidis.Client, error) { return nil, errDown }
			goOn[i] = make(chan struct{})
			d.background.Go(func() {
				for n.ctx.Err() == nil {
					batch := n.nextBatch(nil)
					if len(batch) == 0 {
						n.awaitWork()
						continue
					}
					select {
					case <-goOn[i]:
					case <-n.ctx.Done():
					}
					for _, cmd := range batch {
						if cmd.answer = answers[i][cmd.code]; i == 0 {
							asked <- cmd.code
						}
					}
					n.deliver(batch)
				}
			})
		}
		check := func(when, pattern string) {
			t.Helper()
			synctest.Wait()
			var got []byte
			for len(asked) > 0 {
				got = append(got, <-asked)
			}
			if !regexp.MustCompile("^" + pattern + "$").Match(got) {
				t.Fatalf("%s, the node answers %q, want %s", when, got, pattern)
			}
		}
		close(goOn[1])
		d.nodes[0].suspected = true
		d.newPoll(nil).send(0, codeShowNode, noLock())
		time.Sleep(time.Second)
		d.agents.Go((&agent{d, d.nodes[0], d.params.Admission()}).run)
		time.Sleep(time.Second)
		close(goOn[0])
		time.Sleep(probeInterval)
		check("after the hang", "s+")
		time.Sleep(d.params.Quarantine())
		check("within MaxTTL", "")
		time.Sleep(maxSpread + d.readTimeout())
		check("after MaxTTL", "s+")
		close(goOn[2])
		time.Sleep(2 * probeInterval)
		check("without hung nodes", "s*sscj.*")
	})
}
