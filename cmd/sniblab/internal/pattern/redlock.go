package pattern

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redlock"
)

// Patterns with several independent Redis servers, the nodes, and one more that has the stock.
const (
	TimelessRedlock Name = "Redlock without the elapsed time"
	HastyRedlock    Name = "Redlock without delayed restarts"
	NaiveRedlock    Name = "SET NX PX at each node"
	SnibRedlock     Name = "snib with Redlock"
	FencedRedlock   Name = "snib with Redlock, and a guard"
)

// onRedlock returns a function that opens clients of a pattern.
func onRedlock(
	pattern func(context.Context, Spec, Tracer) (*Client, error),
) func(context.Context, Spec, Tracer) (*Client, error) {
	return func(ctx context.Context, s Spec, t Tracer) (*Client, error) {
		c, err := pattern(ctx, s, t)
		if err == nil && c.Read == nil && s.Stock != "" {
			err = c.workAt(s, t)
		}
		return c, err
	}
}

// naiveRedlock has the lock if a majority of the nodes has made its key. It looks neither at the
// time that this took nor at whether nodes remember, and frees nothing if it fails.
func naiveRedlock(_ context.Context, s Spec, t Tracer) (*Client, error) {
	servers, err := s.redlockServers()
	if err != nil {
		return nil, err
	}
	r := &naiveNodes{Spec: s, trace: t, servers: servers, clients: make([]rueidis.Client, len(servers))}
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			set := []string{"SET", LockKey, s.Client, "NX", "PX", s.ttlMillis()}
			votes := r.ask(ctx, strings.Join(set, " "), set...)
			return len(votes["OK"]) > len(servers)/2, nil
		},
		Release: func(ctx context.Context) error {
			r.ask(ctx, fmt.Sprintf(compareAndDeleteText, LockKey, s.Client), "EVAL", compareAndDeleteScript, "1", LockKey, s.Client)
			return nil
		},
		Close: r.close,
	}, nil
}

// timelessRedlock is Redlock, except that it does not subtract from the TTL the time that the
// acquisition took.
func timelessRedlock(_ context.Context, s Spec, t Tracer) (*Client, error) {
	return redlockOf(s, t, false)
}

// hastyRedlock is Redlock on nodes that take part at once when they restart.
func hastyRedlock(_ context.Context, s Spec, t Tracer) (*Client, error) { return redlockOf(s, t, true) }

// redlockOf is Redlock without renewal. If looks is false, it does not look at the clock.
func redlockOf(s Spec, t Tracer, looks bool) (*Client, error) {
	servers, err := s.redlockServers()
	if err != nil {
		return nil, err
	}
	r := &naiveNodes{Spec: s, trace: t, servers: servers, clients: make([]rueidis.Client, len(servers))}
	free := func(ctx context.Context) error {
		r.ask(ctx, fmt.Sprintf(compareAndDeleteText, LockKey, s.Client), "EVAL", compareAndDeleteScript, "1", LockKey, s.Client)
		return nil
	}
	var until time.Time
	c := &Client{
		Try: func(ctx context.Context) (bool, error) {
			until = time.Now().Add(s.TTL)
			set := []string{"SET", LockKey, s.Client, "NX", "PX", s.ttlMillis()}
			votes := r.ask(ctx, strings.Join(set, " "), set...)
			if len(votes["OK"]) > len(servers)/2 && (!looks || time.Now().Before(until)) {
				return true, nil
			}
			return false, free(ctx)
		},
		Release: free,
		Close:   r.close,
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

// naiveNodes are the nodes of a naiveRedlock.
type naiveNodes struct {
	Spec
	trace   Tracer
	servers []rueidis.ClientOption
	clients []rueidis.Client // nil if there was no connection yet
}

// ask sends a command to one node after the other, and returns the numbers of the nodes by answer.
func (r *naiveNodes) ask(ctx context.Context, shown string, command ...string) map[string][]string {
	votes := make(map[string][]string)
	for i := range r.servers {
		i = (i + r.First) % len(r.servers)
		number := strconv.Itoa(i + 1)
		r.trace.Before("it asks node " + number)
		answer := r.askNode(ctx, i, command)
		votes[answer] = append(votes[answer], number)
	}
	var answers []string
	for answer, numbers := range votes {
		slices.Sort(numbers)
		answers = append(answers, strings.Join(numbers, ", ")+": "+answer)
	}
	slices.Sort(answers)
	r.trace.After(shown+" at each node", strings.Join(answers, "; "))
	return votes
}

func (r *naiveNodes) askNode(ctx context.Context, i int, command []string) (answer string) {
	if r.clients[i] == nil {
		client, err := rueidis.NewClient(r.servers[i])
		if err != nil {
			return "no answer"
		}
		r.clients[i] = client
	}
	value, err := r.clients[i].Do(ctx, r.clients[i].B().Arbitrary(command...).Build()).ToAny()
	switch {
	case rueidis.IsRedisNil(err):
		return none
	case err != nil:
		return "no answer"
	}
	return fmt.Sprint(value)
}

func (r *naiveNodes) close() {
	for _, client := range r.clients {
		if client != nil {
			client.Close()
		}
	}
}

// InitRedlock makes servers the nodes of snib's Redlock, so that they take part at once.
func InitRedlock(ctx context.Context, urls []string) error {
	servers, err := Spec{URLs: urls}.redlockServers()
	if err != nil {
		return err
	}
	return redlock.Admin(servers).Init(ctx)
}

func (s Spec) redlockServers() ([]rueidis.ClientOption, error) {
	var servers []rueidis.ClientOption
	for _, url := range s.URLs {
		option, err := s.redisOption(url)
		if err != nil {
			return nil, err
		}
		servers = append(servers, option)
	}
	return servers, nil
}

// snibRedlock is snib with its Redlock.
func snibRedlock(ctx context.Context, s Spec, t Tracer) (*Client, error) {
	c, _, err := openRedlock(ctx, s, t)
	return c, err
}

func openRedlock(ctx context.Context, s Spec, t Tracer) (*Client, *snibClient, error) {
	servers, err := s.redlockServers()
	if err != nil {
		return nil, nil, err
	}
	// A demo holds requests up while it looks at the nodes, and on a busy machine that takes
	// time.
	driver, err := redlock.Open(ctx, servers, redlock.NodeTimeout(5*time.Second))
	if err != nil {
		return nil, nil, err
	}
	l, err := newSnibClient(driver, LockKey, s, t)
	if err != nil {
		_ = driver.Close()
		return nil, nil, err
	}
	c := l.client()
	c.Try = nil // it would take a second to say that there is no majority
	c.onClose(func() { _ = driver.Close() })
	return c, l, nil
}

// fencedRedlock is snibRedlock with a guard at the stock, which refuses the tokens of
// earlier holds.
func fencedRedlock(ctx context.Context, s Spec, t Tracer) (*Client, error) {
	c, l, err := openRedlock(ctx, s, t)
	if err != nil {
		return nil, err
	}
	r, err := newRedisClient(s, t, s.Stock)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.onClose(r.client.Close)
	c.workThrough(r.client, l)
	return c, nil
}
