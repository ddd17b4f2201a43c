package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// A lossyClient loses requests and answers, and carries out some requests later than others that
// were sent after them.
type lossyClient struct {
	rueidis.Client
	mu   sync.Mutex
	rng  *rand.Rand
	late sync.WaitGroup
}

// Close does nothing: what is late is still sent.
func (c *lossyClient) Close() {}

// lost is the result of a command whose connection was lost.
func (c *lossyClient) lost() rueidis.RedisResult {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return c.Client.Do(ctx, c.B().Ping().Build())
}

func (c *lossyClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.mu.Lock()
	fate, pause := c.rng.IntN(200), time.Duration(c.rng.IntN(8))*time.Millisecond
	c.mu.Unlock()
	switch {
	case fate < 4:
		return c.lost()
	case fate < 7:
		c.Client.Do(ctx, cmd)
		return c.lost()
	case fate < 10:
		c.late.Go(func() {
			time.Sleep(pause) // others are carried out before
			c.Client.Do(context.Background(), cmd)
		})
		return c.lost()
	case fate < 30:
		time.Sleep(pause / 4) // likewise
	}
	return c.Client.Do(ctx, cmd)
}

// TestContendUnderLoss has three processes whose requests and answers are lost, and are carried out
// in another order than they were sent in.
func TestContendUnderLoss(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	var drivers []*redlock.Driver
	for seed := range uint64(3) {
		clients := make(map[string]rueidis.Client)
		for i, o := range c.servers {
			o.DisableCache, o.DisableRetry = true, true
			client, err := rueidis.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			lossy := &lossyClient{Client: client, rng: rand.New(rand.NewPCG(seed, uint64(i)))} //nolint:gosec // it is repeatable
			t.Cleanup(lossy.late.Wait)
			clients[o.InitAddress[0]] = lossy
		}
		var d *redlock.Driver
		livetest.Await(t, "driver", func() (err error) {
			d, err = redlock.OpenClients(t.Context(), c.servers, clients)
			return err
		})
		t.Cleanup(func() { d.Close() })
		drivers = append(drivers, d)
	}
	livetest.Contend(t, drivers, 40, 300*time.Millisecond) // the TTL of a request that is late
	for _, name := range []string{"one", "two"} {          // which are free, at the latest when that is over
		release(t, acquire(t, open(t, c.servers), request(name, "last "+name, time.Minute)))
	}
}
