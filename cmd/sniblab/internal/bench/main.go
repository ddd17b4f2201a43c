// Command bench compares snib with other lock libraries, and with locks by hand, on servers that
// it starts. Its aims are ratios within one run, because absolute figures differ from machine to
// machine and from hour to hour.
//
// Each run is a fresh process, warmed up on separate names. Within a repetition the peers run
// one after the other, and each repetition starts with a different one. Tables give medians,
// with [least–most] where it matters. A ratio is computed within each repetition; the table
// gives the median of these ratios. A cycle is one Acquire and one Release. Latencies are those
// of Acquire, from the first attempt to success. Commands are those that Redis executed,
// including those in scripts. Reads are Redis's reads from its sockets, which count round trips
// and pipelining correctly.
//
// The flag -h lists the scenarios. With -o json a run writes a results file, and -publish makes
// charts and tables of it on the pages.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Getenv(workerEnv) != "" {
		if err := work(os.Stdin, os.Stdout, openPeer(scenarios())); err != nil {
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
	return []scenario{
		uncontended(), ownNames(), oneName(), handOver(), majority(), heldLocks(), manyWaiters(), serverStall(),
		postgres(), mariadb(), zookeeper(), zookeeperHeld(), etcd(), etcdHeld(), stores(), persistence(),
	}
}

// openPeer returns a function that connects to a store as a job's peer.
func openPeer(all []scenario) func(*job) (*client, error) {
	return func(j *job) (*client, error) {
		for _, s := range all {
			if s.name != j.Scenario {
				continue
			}
			for _, p := range s.allPeers() {
				if p.name == j.Peer {
					return p.open(setup{addrs: j.Addrs, ttl: j.TTL})
				}
			}
		}
		return nil, fmt.Errorf("scenario %q has no peer %q", j.Scenario, j.Peer)
	}
}

// allPeers returns the peers of all variants.
func (s *scenario) allPeers() []peer {
	all := s.peers
	for _, v := range s.variants {
		all = slices.Concat(all, v.extra)
	}
	return all
}

// runProgram runs the scenarios that args select.
func runProgram(ctx context.Context, args []string, out, progress io.Writer) error {
	h := harness{delays: []time.Duration{0}, warmup: 300 * time.Millisecond, spawn: spawnSelf, progress: progress, clock: newClock()}
	s := sink{w: out}
	c := choice{scenarios: scenarios()}
	flags, limit, results := flag.NewFlagSet("bench", flag.ContinueOnError), 2*time.Hour, ""
	flags.SetOutput(io.Discard) // main prints errors
	flags.Func("scenario", "run these `scenarios` only (default all)", c.chooseScenarios)
	flags.StringVar(&c.variant, "variant", "", "run only the variants whose names contain this `text`")
	flags.StringVar(&c.peers, "peers", "all", "run these `peers` only")
	flags.IntVar(&h.reps, "reps", 5, "`number` of repetitions")
	flags.DurationVar(&h.window, "window", 0, "`time` that each run is measured for, instead of each variant's own")
	flags.DurationVar(&limit, "limit", limit, "begin no run after this `time`; 0: run all")
	flags.StringVar(&s.format, "o", "text", "`form` of the tables: text, markdown, or json (one table a line, with each run)")
	flags.StringVar(&s.dir, "save", "", "also save each scenario's tables and a chart of them, and a summary, in this `directory`")
	flags.Func("delay", "run each variant once for each of these network `delays`, each way, such as 0,0.2ms,0.5ms,1ms (default 0)", func(list string) (err error) {
		h.delays, err = parseDelays(list)
		return err
	})
	flags.StringVar(&h.profiles, "cpuprofile", "", "`directory` for a CPU profile of each worker of the first repetition")
	flags.StringVar(&results, "publish", "", "instead of measuring, rewrite the parts of the pages that are generated from this `file` of bench/results, written with -o json")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			h.usage(out, flags)
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
	case results != "":
		return publish(filepath.Join(filepath.Dir(results), "..", ".."), results)
	}
	if err := c.narrow(); err != nil {
		return err
	}
	for _, dir := range []string{h.profiles, s.dir} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	if limit > 0 {
		h.until = time.Now().Add(limit)
	}
	h.plan = h.planFor(c.scenarios)
	fmt.Fprintln(progress, h.plan)
	s.begin(describe(), "go run ./cmd/sniblab/internal/bench "+strings.Join(args, " "))
	for _, scenario := range c.scenarios {
		if err := h.runScenario(ctx, &scenario, &s); err != nil {
			return err
		}
	}
	return s.end()
}

// A choice is what the flags choose.
type choice struct {
	scenarios []scenario
	variant   string // part of the names of variants
	peers     string // the list of names, or "all"
}

// chooseScenarios chooses the scenarios of a list of names, or of their older numbers.
func (c *choice) chooseScenarios(list string) (err error) {
	for _, s := range c.scenarios {
		list = strings.ReplaceAll(","+list+",", ","+s.id+",", ","+s.name+",")
		list = strings.Trim(list, ",")
	}
	c.scenarios, err = selectByName(c.scenarios, list, func(s scenario) string { return s.name })
	return err
}

// narrow leaves the variants and the peers that are chosen.
func (c *choice) narrow() error {
	var all []peer
	for _, s := range c.scenarios {
		all = append(all, s.allPeers()...)
	}
	chosen, err := selectByName(all, c.peers, func(p peer) string { return p.name })
	if err != nil {
		return err
	}
	unwanted := func(p peer) bool {
		return !slices.ContainsFunc(chosen, func(c peer) bool { return c.name == p.name })
	}
	variants := 0
	for i := range c.scenarios {
		s := &c.scenarios[i]
		s.peers = slices.DeleteFunc(s.peers, unwanted)
		s.variants = slices.DeleteFunc(s.variants, func(v variant) bool { return !strings.Contains(v.name, c.variant) })
		for j := range s.variants {
			s.variants[j].extra = slices.DeleteFunc(s.variants[j].extra, unwanted)
		}
		variants += len(s.variants)
	}
	c.scenarios = slices.DeleteFunc(c.scenarios, func(s scenario) bool { return len(s.variants) == 0 })
	if variants == 0 {
		return fmt.Errorf("no variant's name contains %q", c.variant)
	}
	return nil
}

// usage prints the flags, and the scenarios with their peers.
func (h *harness) usage(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprintln(w, "usage: go run ./cmd/sniblab/internal/bench [flags]")
	flags.SetOutput(w)
	flags.PrintDefaults()
	fmt.Fprintln(w, "\nscenarios, with the time that they take:")
	for _, s := range scenarios() {
		id := ""
		if s.id != "" {
			id = " (" + s.id + ")"
		}
		fmt.Fprintf(w, "\n  %s%s, %v\n", s.name, id, h.planFor([]scenario{s}).left.Round(10*time.Second))
		for _, line := range wrap(s.about, " ", 90) {
			fmt.Fprintf(w, "    %s\n", line)
		}
		for _, line := range wrap("peers: "+joinNames(s.allPeers(), func(p peer) string { return p.name }), " ", 90) {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
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

// joinNames returns the names without repetitions, separated by commas.
func joinNames[T any](all []T, name func(T) string) string {
	var list []string
	for _, x := range all {
		if !slices.Contains(list, name(x)) {
			list = append(list, name(x))
		}
	}
	return strings.Join(list, ", ")
}
