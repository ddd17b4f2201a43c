package pattern

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// Patterns with several independent Redis servers, the nodes.
const (
	TimelessRedlock Name = "Redlock without the elapsed time"
	HastyRedlock    Name = "Redlock without delayed restarts"
)

// redlockOf opens clients of Redlock without renewal, on nodes that take part at once when they
// restart. If looks is false, they do not look at the clock: they do not subtract from the TTL the
// time that the acquisition took.
func redlockOf(looks bool) func(context.Context, Spec, Tracer) (*Client, error) {
	return func(_ context.Context, s Spec, _ Tracer) (*Client, error) { return openRedlock(s, looks) }
}

func openRedlock(s Spec, looks bool) (*Client, error) {
	var nodes redlockNodes
	for _, url := range s.URLs {
		option, err := redisOption(url)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, redlockNode{option: option})
	}
	free := func(ctx context.Context) error {
		nodes.ask(ctx, "EVAL", compareAndDeleteScript, "1", LockKey, s.Client)
		return nil
	}
	var until time.Time
	c := &Client{
		Try: func(ctx context.Context) (bool, error) {
			until = time.Now().Add(s.TTL)
			votes := nodes.ask(ctx, "SET", LockKey, s.Client, "NX", "PX", s.ttlMillis())
			if votes > len(nodes)/2 && (!looks || time.Now().Before(until)) {
				return true, nil
			}
			return false, free(ctx)
		},
		Release: free,
		Close:   nodes.close,
	}
	if looks {
		c.Held = func() error {
			if time.Now().After(until) {
				return ErrRefused
			}
			return nil
		}
	}
	return c, nil
}

type redlockNodes []redlockNode

type redlockNode struct {
	option rueidis.ClientOption
	client rueidis.Client // nil if there was no connection yet
}

// ask sends a command to one node after the other, and returns how many have answered with OK.
func (all redlockNodes) ask(ctx context.Context, command ...string) (votes int) {
	for i := range all {
		n := &all[i]
		if n.client == nil {
			client, err := rueidis.NewClient(n.option)
			if err != nil {
				continue
			}
			n.client = client
		}
		answer, err := n.client.Do(ctx, n.client.B().Arbitrary(command...).Build()).ToString()
		if err == nil && answer == "OK" {
			votes++
		}
	}
	return votes
}

func (all redlockNodes) close() {
	for _, n := range all {
		if n.client != nil {
			n.client.Close()
		}
	}
}
