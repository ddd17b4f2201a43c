// Command bench compares snib with other lock libraries for Redis, on its own Redis
// server. Its targets are ratios within one run, because absolute figures differ from
// machine to machine and from hour to hour.
//
// Each run is a fresh process, warmed up on separate keys. Within a repetition the peers run
// one after the other, and each repetition starts with a different one. Tables give medians,
// with [least–most] where it matters. A ratio is computed within each repetition; the table
// gives the median of these ratios. Latencies are those of Acquire, from the first attempt to
// success. Commands are those that Redis executed, including those in scripts. Reads are
// Redis's reads from its sockets, which count round trips and pipelining correctly.
//
// The scenarios say what they measure. Those of Redis are in scenarios.go. The scenarios stores and
// persistence compare snib on different stores. With -o json a run writes a results file, and
// -publish makes charts and tables of it on the pages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

func main() {
	if os.Getenv(workerEnv) != "" {
		if err := work(os.Stdin, os.Stdout, allPeers()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // one of the two places where the program ends
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runProgram(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // the other one
	}
}

func scenarios() []scenario {
	return []scenario{uncontended(), ownKeys(), sharedKey(), handOver(), majority(), heldLocks(), manyWaiters(), serverStall(), zookeeper(), zookeeperHeld(), etcd(), etcdHeld(), stores(), persistence()}
}

// runProgram runs the scenarios that args select.
func runProgram(ctx context.Context, args []string, out, progress io.Writer) error {
	h := harness{delays: []time.Duration{0}, proxies: map[string]*livetest.Proxy{}, peers: allPeers(), warmup: 300 * time.Millisecond, spawn: spawnSelf, progress: progress, clock: newClock()}
	chosen := scenarios()
	byName := func(s scenario) string { return s.name }
	peerByName := func(p peer) string { return p.name }
	s := sink{w: out}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints errors
	flags.Func("scenario", "run these `scenarios` only, of "+joinNames(chosen, byName)+" (default all)", func(list string) (err error) {
		chosen, err = selectByName(chosen, list, byName)
		return err
	})
	flags.Func("peers", "run these `peers` only, of "+joinNames(h.peers, peerByName)+" (default all)", func(list string) (err error) {
		h.peers, err = selectByName(h.peers, list, peerByName)
		return err
	})
	flags.IntVar(&h.reps, "reps", 3, "`number` of repetitions")
	flags.DurationVar(&h.window, "window", 0, "`time` that each run is measured for, instead of each scenario's own")
	flags.StringVar(&s.format, "o", "text", "`form` of the tables: text, markdown, or json (one table a line, with each run)")
	results := flags.String("publish", "", "instead of measuring, rewrite the parts of the pages that are generated from this `file` of bench/results, written with -o json")
	flags.StringVar(&s.dir, "save", "", "also save each scenario's tables and a chart of them in this `directory`")
	flags.Func("delay", "run each scenario once for each of these network `delays`, each way, such as 0,0.2ms,0.5ms,1ms (default 0)", func(list string) (err error) {
		h.delays, err = parseDelays(list)
		return err
	})
	flags.StringVar(&h.profiles, "cpuprofile", "", "`directory` for a CPU profile of each worker of the first repetition")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(out)
			flags.Usage()
		}
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !slices.Contains([]string{"text", "markdown", "json"}, s.format):
		return fmt.Errorf("-o is text, markdown or json, and not %q", s.format)
	case h.reps < 1:
		return fmt.Errorf("-reps is at least 1, and not %d", h.reps)
	}
	if *results != "" {
		return publish(filepath.Join(filepath.Dir(*results), "..", ".."), *results)
	}
	for _, dir := range []string{h.profiles, s.dir} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	return livetest.Outside(func(t testing.TB) error {
		h.t, h.server = t, startServer(t)
		s.begin(h.describe(), "go run ./bench "+strings.Join(args, " "))
		for _, scenario := range chosen {
			if err := h.runScenario(ctx, &scenario, &s); err != nil {
				return err
			}
		}
		return nil
	})
}

// runScenario measures all variants of a scenario, with each delay, and writes the results.
func (h *harness) runScenario(ctx context.Context, scenario *scenario, s *sink) error {
	var tables []*table
	for _, v := range scenario.variants {
		for _, delay := range h.delays {
			v := v
			v.delay = delay
			tab, err := h.measure(ctx, scenario, &v)
			if err != nil {
				return err
			}
			if err := s.put(tab); err != nil {
				return err
			}
			tables = append(tables, tab)
		}
	}
	return s.save(tables)
}

// parseDelays parses a comma-separated list of durations.
func parseDelays(list string) (delays []time.Duration, err error) {
	for text := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q is no delay, such as 0.5ms", text)
		}
		delays = append(delays, d)
	}
	return delays, nil
}

// selectByName returns the elements of all whose names are in the comma-separated list, in the
// order of all. The list "all" selects all of them.
func selectByName[T any](all []T, list string, name func(T) string) ([]T, error) {
	if list == "all" {
		return all, nil
	}
	want := strings.Split(list, ",")
	for _, w := range want {
		if !slices.ContainsFunc(all, func(x T) bool { return name(x) == w }) {
			return nil, fmt.Errorf("there is no %q, only %s", w, joinNames(all, name))
		}
	}
	return slices.DeleteFunc(all, func(x T) bool { return !slices.Contains(want, name(x)) }), nil
}

func joinNames[T any](all []T, name func(T) string) string {
	var list []string
	for _, x := range all {
		list = append(list, name(x))
	}
	return strings.Join(list, ", ")
}

// describe describes the machine and the versions that are measured.
func (h *harness) describe() string {
	text := fmt.Sprintf("%s, %d cores, %s/%s, %s, Redis %s on the same machine",
		time.Now().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), h.server.Info("server")["redis_version"])
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text + "."
	}
	for _, dep := range info.Deps {
		if dep.Replace != nil && dep.Replace.Version != "" {
			dep = dep.Replace
		}
		for _, peer := range []string{"redsync", "bsm/redislock", "redis/rueidis", "go-redis", "hdrhistogram", "go-zookeeper"} {
			if strings.Contains(dep.Path, peer) {
				text += ", " + strings.TrimPrefix(dep.Path, "github.com/") + " " + dep.Version
			}
		}
	}
	return text + "."
}
