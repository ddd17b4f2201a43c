package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redlock"
)

// majority is S5: Redlock over five nodes. It measures the cost of a majority, and whether nodes
// that don't answer delay callers, or leave goroutines or locks behind. In some variants, one or
// two nodes are killed or hung after the warm-up. Hung nodes are resumed at the end of the window,
// before the libraries are closed.
func majority() scenario {
	one, many := load{Goroutines: 1, Keys: 1}, load{Goroutines: 64, Keys: 1}
	clean := []target{{column: "keys left", op: "≤", bound: 0}, {column: "errors", op: "≤", bound: 0}}
	faulty := func(name string, l load, killed, hung int) variant {
		return variant{name: name, procs: 1, load: l, window: 3 * time.Second, nodes: 5, killed: killed, hung: hung, targets: clean}
	}
	healthy := faulty("healthy, 64 goroutines", many, 0, 0)
	healthy.targets = append([]target{{column: "ops/s", relativeTo: best, op: "≥", bound: 5}}, clean...)
	oneKey := faulty("healthy, 64 goroutines, one key", load{Goroutines: 64}, 0, 0)
	oneKey.targets = append([]target{{column: "ops/s", relativeTo: best, op: "≥", bound: 100}, {column: "max/min", op: "≤", bound: 1.2}}, clean...)
	return scenario{
		name: "S5",
		variants: []variant{
			faulty("healthy, 1 goroutine", one, 0, 0),
			faulty("1 killed, 1 goroutine", one, 1, 0), faulty("1 killed, 64 goroutines", many, 1, 0),
			faulty("1 hung, 1 goroutine", one, 0, 1), faulty("1 hung, 64 goroutines", many, 0, 1),
			faulty("2 hung, 1 goroutine", one, 0, 2), faulty("2 hung, 64 goroutines", many, 0, 2),
			healthy, oneKey,
		},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p99", 99, time.Microsecond), waited("longest", 100, time.Microsecond),
			{"goroutines", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(p.Goroutines) })
			}, false},
			fairness(),
			{"errors", func(r *run) float64 { return float64(r.gaveUp().N + r.lost().N) }, false},
			{"keys left", func(r *run) float64 { return float64(r.keysLeft) }, false},
			allocsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
		},
		ratio: true,
	}
}

func openSnibOverNodes(s setup) (*client, error) {
	var servers []rueidis.ClientOption
	for _, addr := range s.nodes {
		servers = append(servers, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := redlock.Admin(servers).Init(ctx); err != nil {
		return nil, err
	}
	d, err := redlock.Open(ctx, servers)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

// startServers starts n independent servers.
func startServers(ctx context.Context, n int) (servers []*server, err error) {
	for range n {
		s, err := startServer(ctx)
		if err != nil {
			stopServers(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func stopServers(servers []*server) {
	for _, s := range servers {
		s.stop()
	}
}

func addresses(servers []*server) (all []string) {
	for _, s := range servers {
		all = append(all, s.addr)
	}
	return all
}

// breakServers kills the first servers and hangs the next ones.
func breakServers(servers []*server, killed, hung int) error {
	for i, s := range servers[:killed+hung] {
		signal := syscall.SIGSTOP
		if i < killed {
			signal = syscall.SIGKILL
		}
		if err := s.cmd.Process.Signal(signal); err != nil {
			return fmt.Errorf("break server %d: %w", i, err)
		}
	}
	return nil
}

// resumeServers resumes hung servers.
func resumeServers(hung []*server) error {
	for _, s := range hung {
		if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	return nil
}

// sumCounters returns the sums of the counters of several servers.
func sumCounters(ctx context.Context, servers []*server) (sum counters, err error) {
	for _, s := range servers {
		c, err := s.counters(ctx)
		if err != nil {
			return sum, err
		}
		sum.Commands += c.Commands
		sum.Reads += c.Reads
		sum.CPU += c.CPU
		sum.Keys += c.Keys
	}
	return sum, nil
}

// countKeysLeft returns how many keys of locks are left on servers. It does not count the hash in
// which snib keeps its counters.
func countKeysLeft(ctx context.Context, servers []*server) (left int64, err error) {
	for _, s := range servers {
		keys, err := s.control.DBSize(ctx).Result()
		if err != nil {
			return left, err
		}
		own, err := s.control.Exists(ctx, "snib.redlock").Result()
		if err != nil {
			return left, err
		}
		left += keys - own
	}
	return left, nil
}
