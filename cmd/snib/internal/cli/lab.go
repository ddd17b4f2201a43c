package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/lab/arena"
	"github.com/sniblock/snib/lab/contestant"
	"github.com/sniblock/snib/lab/judge"
	"github.com/sniblock/snib/lab/peers"
	"github.com/sniblock/snib/lab/report"
	"github.com/sniblock/snib/lab/scene"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redlock"
)

// A labCommand is one call of "snib lab".
type labCommand struct {
	*app
	names, faults []string
	planText      string
	plan          []arena.Step
	store         *choice
	hasStore      bool // --store was given
	time          *duration
	seed          seed
	noControls    bool
	dir           string
	output        *choice
	line          *progressLine
}

func (a *app) newLabCommand() *cobra.Command {
	l := &labCommand{app: a}
	cmd := &cobra.Command{
		Use:     "lab run|list|explain [VERDICT]",
		Short:   "judge locks of programs under faults, and show how broken ones fail",
		Example: labExamples,
		Long:    labNotes,
		// "contestant NAME" is the process of a contestant that comes with snib.
		ValidArgs: []string{"run", "list", "explain"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 || len(args) == 2 && args[0] != "explain" && args[0] != "contestant" {
				return usagef("%d arguments were given: usage: %s", len(args), usageLine(cmd))
			}
			if !slices.Contains(cmd.ValidArgs, args[0]) && len(args) == 1 {
				return usagef("there is no command lab %q; usage: %s", args[0], usageLine(cmd))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVarP(&l.names, "contestant", "c", nil, "run: judge `NAME` of the list, or a program; repeatable (default: those of snib)")
	l.store = addChoice(cmd, "store", "", "run: the store that a program gets: see snib lab list", convert(arena.Stores(), func(k arena.StoreKind) string { return string(k) })...)
	l.store.kind = "KIND" // "snib lab list" has them
	f.StringSliceVar(&l.faults, "fault", nil, "run: only these `FAULTS` (default: all that fit)")
	l.time = addDuration(cmd, "for", "", "run: for how long to try each contestant", 20*time.Second, time.Millisecond)
	f.Var(&l.seed, "seed", "run: the `SEED` of the faults (default: a new one)")
	f.StringVar(&l.planText, "plan", "", "run: do the faults of `PLAN` in each bout, as FAULT:CLIENT:NUMBER,...")
	f.BoolVar(&l.noControls, "no-controls", false, "run: don't check first that the lab convicts broken locks")
	f.StringVar(&l.dir, "out", "snib-lab", "run: write index.html and verdicts.json into `DIR`")
	l.output = addOutput(cmd, "auto", "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch args[0] {
		case "list":
			return l.printf("%s", l.list())
		case "explain":
			return l.explainVerdict(args[1:])
		case "contestant":
			return serveContestant(args[1])
		}
		// A contestant that has ended breaks the pipe to it, which must not end us. A broken
		// standard output is an error of its Write.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		// Later signals end the process although its output may block. Programs such as timeout
		// send the same signal twice at once.
		context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
		l.hasStore = cmd.Flags().Changed("store")
		return l.run(ctx)
	}
	return cmd
}

// A seed is the value of a flag: a number from 1, or 0 if it is not given.
type seed uint64

func (s *seed) String() string { return "" }

func (s *seed) Type() string { return "SEED" }

func (s *seed) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("it is not a whole number from 1 to %d", uint64(math.MaxUint64))
	}
	*s = seed(n)
	return nil
}

// ownCommand returns how to start a contestant that comes with snib.
func ownCommand(name string) []string {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return []string{exe, "lab", "contestant", name}
}

// labContestants returns snib on those of its stores that the lab can start.
func labContestants() []arena.Contestant {
	own := func(name, title string, store arena.StoreKind, query string) arena.Contestant {
		return arena.Contestant{Name: name, Title: title, Store: store, Query: query, Tokens: true, Command: ownCommand(name)}
	}
	const grace, session = "?grace-floor=1s", "?session-timeout=1s"
	memory := own("snib-memory", "snib in the memory of one process, whose goroutines compete", arena.None, "")
	memory.Scheme, memory.Together = "memory:", true
	sqlite := own("snib-sqlite", "snib on a SQLite file", arena.File, "")
	sqlite.Scheme = "sqlite:"
	sentinel := own("snib-sentinel", "snib on Redis behind Sentinels, with allow-split-brain=on", arena.Sentinel, "?allow-split-brain=on")
	sentinel.Settle = sentinelGrace
	cluster := own("snib-cluster", "snib on a Redis Cluster, with grace-floor=1s", arena.Cluster, grace)
	cluster.Settle = failoverTime
	redlock := own("snib-redlock", "snib with Redlock on three Redis servers, with max-ttl=2s", arena.Redlock, "?max-ttl=2s")
	redlock.OneWay, redlock.Prepare, redlock.Settle = true, prepareRedlock, failoverTime
	all := []arena.Contestant{
		memory, sqlite,
		own("snib-redis", "snib on one Redis server, with grace-floor=1s", arena.Redis, grace),
		sentinel, cluster, redlock,
		own("snib-postgres", "snib in a table of a PostgreSQL server", arena.Postgres, ""),
		own(postgresSessions, "snib with PostgreSQL's advisory locks, and a session timeout of a TTL", arena.Postgres, ""),
		own("snib-pgbouncer", "snib in a table of a PostgreSQL server behind PgBouncer in transaction mode", arena.PgBouncer, ""),
		own("snib-postgres-sync", "snib in a table of a PostgreSQL server with a synchronous standby", arena.PostgresSync, ""),
		own("snib-postgres-async", "snib in a table of a PostgreSQL server with an asynchronous standby", arena.PostgresAsync, ""),
		own("snib-mysql", "snib in a table of a MariaDB server", arena.MySQL, ""),
		own("snib-mysql-semisync", "snib in a table of a MariaDB server with a semi-synchronous replica", arena.MySQLSync, ""),
		own("snib-mysql-async", "snib in a table of a MariaDB server with an asynchronous replica", arena.MySQLAsync, ""),
		own("snib-etcd", "snib on one etcd server, with session-timeout=1s", arena.Etcd, session),
		own("snib-etcd-cluster", "snib on three etcd servers, with session-timeout=1s", arena.EtcdCluster, session),
		own("snib-zookeeper", "snib on one ZooKeeper server, with session-timeout=1s", arena.ZooKeeper, session),
		own("snib-zookeeper-ensemble", "snib on three ZooKeeper servers, with session-timeout=1s", arena.ZooKeepers, session),
	}
	for i := range all {
		all[i].Assumes = labAssumptions[all[i].Name]
		if all[i].Store == arena.Redis {
			all[i].Restart = redisTokens
		}
	}
	return all
}

// redisTokens is when tokens of snib-redis go back (docs/backends/redislock.md, Fencing).
var redisTokens = judge.Restart{
	Fault: "store-forget", After: "store-back",
	Assumption: "the clock of a server that has lost its memory is not behind: tokens go on from it",
}

// labAssumptions has, for contestants that state assumptions in their Info, those that a fault of
// the lab breaks, by the fault, and the reason for a herd.
var labAssumptions = map[string]map[string]string{
	"snib-redis":          {"store-forward": "the server's wall clock does not jump forward: leases end by it"},
	"snib-postgres":       {"store-forward": clockAssumed},
	"snib-mysql":          {"store-forward": clockAssumed},
	"snib-postgres-async": {"failover": "a standby is promoted only if it has all commits"},
	"snib-mysql-async":    {"failover": "a replica is promoted only if it has all commits"},
	"snib-redlock": {
		"store-forward":    "no wall clock of a server jumps forward",
		string(judge.Herd): "few clients wait for a lock: the nodes have no common queue, so each release lets all waiters ask them (docs/backends/redlock.md)",
	},
}

const clockAssumed = "the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left"

const (
	// sentinelGrace is how long snib's locks on a new or restarted master behind Sentinels wait:
	// 20 s, with a reserve for the failover.
	sentinelGrace = 25 * time.Second

	// failoverTime is how long a failover of a Cluster takes, with the grace after it, and how
	// long a node of Redlock takes no part after a restart.
	failoverTime = 5 * time.Second
)

// prepareRedlock makes empty servers the nodes of a Redlock.
func prepareRedlock(ctx context.Context, url string) error {
	addrs, _, _ := strings.Cut(strings.TrimPrefix(url, "redlock://"), "?")
	var nodes []rueidis.ClientOption
	for addr := range strings.SplitSeq(addrs, ",") {
		nodes = append(nodes, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	return redlock.Admin(nodes, redlock.MaxTTL(2*time.Second)).Init(ctx)
}

// postgresSessions is the contestant whose locks are sessions, which no URL of a store can say.
const postgresSessions = "snib-postgres-sessions"

// museum returns the broken patterns.
func museum() []arena.Contestant { return arena.Museum(ownCommand) }

// list describes contestants and faults.
func (l *labCommand) list() string {
	var b strings.Builder
	add := func(title string, all []arena.Contestant) {
		b.WriteString(title + "\n")
		for _, c := range all {
			text := c.Title + ". " + c.Guilt
			if c.Source != "" {
				text += " See " + c.Source + "."
			}
			if err := c.Store.Missing(); err != nil {
				text += fmt.Sprintf(" Can't be run here: %s.", message(err))
			}
			writeTerm(&b, "  "+c.Name, text, 20)
		}
		b.WriteString("\n")
	}
	add("Contestants ("+ownGroup+")", labContestants())
	b.WriteString(listPeers())
	add("Controls: broken patterns, which each run convicts first", museum())
	b.WriteString("Stores\n")
	for _, kind := range arena.Stores() {
		writeTerm(&b, "  "+string(kind), kind.About(), 20)
	}
	b.WriteString("\nFaults\n")
	for _, f := range arena.Faults() {
		text := f.About
		if f.Needs != "" {
			text += " (needs " + f.Needs + ")"
		}
		writeTerm(&b, "  "+f.Name, text, 20)
	}
	return b.String()
}

// explainVerdict explains one verdict, or all.
func (l *labCommand) explainVerdict(args []string) error {
	var b strings.Builder
	for _, e := range judge.Verdicts() {
		if len(args) == 0 || args[0] == string(e.Verdict) {
			name := string(e.Verdict)
			if e.Convicted {
				name += " (convicted)"
			}
			fmt.Fprintf(&b, "%s\n", name)
			writeTerm(&b, "", e.Short+". "+e.Long, 2)
		}
	}
	if b.Len() == 0 {
		return usagef("there is no verdict %q; there are %s", args[0], strings.Join(verdictNames(), ", "))
	}
	return l.printf("%s", b.String())
}

func verdictNames() []string {
	return convert(judge.Verdicts(), func(e judge.Explanation) string { return string(e.Verdict) })
}

// ownGroup is the name of snib on all stores that are installed.
const ownGroup = "snib"

func installedContestants() []arena.Contestant {
	return slices.DeleteFunc(labContestants(), func(c arena.Contestant) bool { return c.Store.Missing() != nil })
}

// chosen returns the contestants that the flags name.
func (l *labCommand) chosen() ([]arena.Contestant, error) {
	if len(l.names) == 0 {
		return installedContestants(), nil
	}
	var all []arena.Contestant
	known := slices.Concat(labContestants(), museum())
	for _, name := range l.names {
		i := slices.IndexFunc(known, func(c arena.Contestant) bool { return c.Name == name })
		switch {
		case i >= 0:
			all = append(all, known[i])
		case name == ownGroup:
			all = append(all, installedContestants()...)
		case len(peers.Named(name)) > 0:
			found, err := l.chosenPeers(name)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		case isProgram(name):
			if err := checkProgram(name); err != nil {
				return nil, err
			}
			all = append(all, arena.Contestant{
				Name: name, Title: "a program", Store: arena.StoreKind(l.store.value), Command: []string{"sh", "-c", name}, LibcClock: true,
			})
		default:
			return nil, usagef("there is no contestant %q: see snib lab list, or give a program with its path, such as ./%[1]s", name)
		}
	}
	return all, nil
}

// isProgram reports whether the name of a contestant is a program.
func isProgram(name string) bool { return strings.ContainsAny(name, "/ ") }

// checkProgram reports that a program which is named by its path can't be run. Whatever is no plain
// path is left to the shell.
func checkProgram(name string) error {
	path, _, _ := strings.Cut(name, " ")
	if !strings.Contains(path, "/") || shellQuote(path) != path {
		return nil
	}
	_, err := exec.LookPath(path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return usagef("%s is not executable: chmod +x it, or name its interpreter, such as python3 %[1]s", path)
	case err != nil:
		return usagef("there is no program %s: give the path of a file, or see snib lab list", path)
	}
	return nil
}

// checkFlags checks what the flags about faults say, and that they fit together.
func (l *labCommand) checkFlags() error {
	if l.planText != "" && len(l.faults) > 0 {
		return usagef("--fault and --plan exclude each other: a plan has the faults already")
	}
	names := convert(arena.Faults(), func(f arena.FaultInfo) string { return f.Name })
	for _, name := range l.faults {
		if !slices.Contains(names, name) {
			return usagef("--fault: there is no fault %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	if l.planText == "" {
		return nil
	}
	var err error
	if l.plan, err = arena.ParsePlan(l.planText); err != nil {
		return usagef("--plan: %w", err)
	}
	return nil
}

// fitting returns the contestants that can have the faults of the flags. It leaves out those of a
// group that can't, as long as one is left.
func (l *labCommand) fitting(chosen []arena.Contestant) ([]arena.Contestant, error) {
	var fit []arena.Contestant
	var errs []error
	for _, c := range chosen {
		err := arena.CheckFaults(c, l.faults, l.plan)
		switch {
		case err == nil:
			fit = append(fit, c)
		case slices.Contains(l.names, c.Name):
			return nil, usagef("%w", err)
		default:
			errs = append(errs, err)
		}
	}
	if len(fit) == 0 && len(errs) > 0 {
		return nil, usagef("%w", errs[0])
	}
	for _, err := range errs {
		l.infof("left out: %s", message(err))
	}
	return fit, nil
}

// prepare returns what to run, or the error that would otherwise end the run after minutes.
func (l *labCommand) prepare() (controls, chosen []arena.Contestant, err error) {
	if err := l.checkFlags(); err != nil {
		return nil, nil, err
	}
	if chosen, err = l.chosen(); err != nil {
		return nil, nil, err
	}
	if l.hasStore && !slices.ContainsFunc(l.names, isProgram) {
		return nil, nil, usagef("--store is for programs: a contestant of the list has its own store; see snib lab list")
	}
	if chosen, err = l.fitting(chosen); err != nil {
		return nil, nil, err
	}
	if !l.noControls {
		controls = arena.Controls(museum(), chosen)
	}
	for _, c := range slices.Concat(controls, chosen) {
		if err := missingServer(c, c.Store.Missing()); err != nil {
			return nil, nil, err
		}
	}
	if err := makeWritable(l.dir); err != nil {
		return nil, nil, failf(exitOutput, "--out: %w", err)
	}
	for _, c := range labContestants() {
		if err := c.Store.Missing(); len(l.names) == 0 && err != nil {
			l.infof("%s is left out: %s", c.Name, message(err))
		}
	}
	return controls, chosen, nil
}

// makeWritable makes a folder, and checks that files can be written into it.
func makeWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".snib-lab-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// run runs the controls, and then the contestants.
func (l *labCommand) run(ctx context.Context) error {
	controls, chosen, err := l.prepare()
	if err != nil {
		return err
	}
	if err := l.installPeers(ctx, chosen); err != nil {
		return err
	}
	if l.output.value == "auto" {
		l.output.value = "json"
		if child.IsTerminal(os.Stdout) {
			l.output.value = "table"
		}
	}
	l.seed = cmp.Or(l.seed, seed(rand.Uint64N(1<<32)+1))
	l.line = l.newProgressLine()
	defer l.line.clear()
	outcomes, err := l.part(ctx, "controls", controls, nil)
	void := slices.ContainsFunc(outcomes, func(o arena.Outcome) bool { return !o.AsExpected() })
	if err == nil && !void {
		var judged []arena.Outcome
		judged, err = l.part(ctx, "contestants", chosen, l.plan)
		outcomes = append(outcomes, judged...)
	}
	switch {
	case errors.Is(err, errInterrupted):
		return l.interrupted(outcomes, void)
	case err != nil:
		return err
	}
	return l.conclude(outcomes, void)
}

// errInterrupted is the error of a part of a run that a signal ended.
var errInterrupted = errors.New("the run was interrupted")

// part runs some contestants. If a signal ends it, it returns what was judged until then.
func (l *labCommand) part(ctx context.Context, what string, all []arena.Contestant, plan []arena.Step) ([]arena.Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failed error
	outcomes, err := arena.Run(ctx, arena.Options{Contestants: all, Faults: l.faults, For: l.time.value, Seed: uint64(l.seed), Plan: plan}, arena.Audience{
		Progress: func(share float64, running []string) {
			const width = 20
			done := int(share * width)
			l.line.show("%s [%s%s] %s", what, strings.Repeat("#", done), strings.Repeat(".", width-done), strings.Join(running, ", "))
		},
		Done: func(o arena.Outcome) {
			l.line.clear()
			if err := l.show(o); err != nil && failed == nil {
				failed = err
				cancel(err)
			}
		},
	})
	switch {
	case errors.Is(failed, syscall.EPIPE):
		return nil, silentExit(exitSignal + int(syscall.SIGPIPE)) // the reader has seen enough
	case failed != nil:
		return nil, failed
	case err != nil:
		return outcomes, errInterrupted
	}
	for _, o := range outcomes {
		if err := missingServer(o.Contestant, o.Err); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// missingServer returns the error for a contestant whose server is not installed, or nil if err
// is none about that.
func missingServer(c arena.Contestant, err error) error {
	if missing, ok := errors.AsType[*scene.MissingError](err); ok {
		return failf(exitUnavailable, "%s: %s", c.Name, installHint(missing))
	}
	return nil
}

// show prints an outcome.
func (l *labCommand) show(o arena.Outcome) error {
	return l.print(l.output.value, result{
		oneLine:  true,
		document: func() any { return verdictLineJSON{"snib.verdict/1", l.toVerdict(o)} },
		text: func() string {
			text := "acquitted: " + o.Text()
			switch {
			case o.Err != nil:
				text = "not judged: " + message(o.Err)
			case o.Convicted():
				text = "convicted: " + o.Text()
			}
			line := fmt.Sprintf("%-22s %-50s %5d acquired, %3d faults, %s", o.Contestant.Name, text, o.Acquired, countFaults(o), short(o.Took))
			if o.Late != nil {
				line += "; it was run no further: " + oneLine(message(o.Late))
			}
			if all := o.LastErrors(); len(all) > 0 && o.Err == nil { // the text of Err has it
				line += "; its last error: " + oneLine(all[len(all)-1])
			}
			return line + "\n"
		},
	})
}

func countFaults(o arena.Outcome) (n int) {
	for _, count := range o.Faults {
		n += count
	}
	return n
}

// interrupted writes the files of a run that a signal has ended.
func (l *labCommand) interrupted(outcomes []arena.Outcome, void bool) error {
	l.line.clear()
	what := "nothing was judged yet" // the files of an earlier run stay
	if len(outcomes) > 0 {
		if err := l.write(report.Page{Void: void, Interrupted: true}, outcomes); err != nil {
			return err
		}
		what = "what was judged so far is in " + filepath.Join(l.dir, "index.html")
	}
	l.infof("interrupted: %s", what)
	return silentExit(exitSignal + int(syscall.SIGINT))
}

// conclude writes the files, and returns the error for the worst that was found.
func (l *labCommand) conclude(outcomes []arena.Outcome, void bool) error {
	if err := l.write(report.Page{Void: void}, outcomes); err != nil {
		return err
	}
	l.infof("the pictures are in %s", filepath.Join(l.dir, "index.html"))
	for _, o := range outcomes {
		switch {
		case void && !o.AsExpected() && o.Err != nil:
			return failf(exitVoid, "the run is void: control %s was not judged: %w", o.Contestant.Name, o.Err)
		case void && !o.AsExpected():
			return failf(exitVoid, "the run is void: control %s got the verdict %s, and not %s", o.Contestant.Name, o.Verdict(), o.Contestant.Want)
		case o.Err != nil:
			return failf(exitOf(o.Err), "%w", o.Err)
		}
	}
	if slices.ContainsFunc(outcomes, func(o arena.Outcome) bool { return o.Convicted() && (!o.Contestant.IsControl() || l.noControls) }) {
		return silentExit(exitFound)
	}
	return nil
}

// exitOf returns the exit code for the error of a contestant that was not judged.
func exitOf(err error) int {
	if _, ok := errors.AsType[*contestant.Error](err); ok {
		return exitProtocol
	}
	return exitUnavailable // a server of the lab, and no fault of the contestant
}

// write writes the page and the verdicts.
func (l *labCommand) write(page report.Page, outcomes []arena.Outcome) error {
	page.Version, _ = buildVersion()
	page.When, page.Seed, page.Repeat = time.Now(), uint64(l.seed), l.repeat
	if err := l.writeFiles(page, outcomes); err != nil {
		return failf(exitOutput, "--out: %w", err)
	}
	return nil
}

func (l *labCommand) writeFiles(page report.Page, outcomes []arena.Outcome) error {
	file, err := os.Create(filepath.Join(l.dir, "index.html"))
	if err != nil {
		return err
	}
	if err := errors.Join(report.Write(file, page, outcomes), file.Close()); err != nil {
		return err
	}
	document, err := encode(labJSON{
		"snib.lab/1", page.Version, page.When.UTC().Format(time.RFC3339), page.Seed, page.Void, page.Interrupted, convert(outcomes, l.toVerdict),
	}, "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.dir, "verdicts.json"), append(document, '\n'), 0o666)
}

// repeat returns the command that runs the decisive bout of an outcome again.
func (l *labCommand) repeat(o arena.Outcome) string {
	text := fmt.Sprintf("snib lab run --no-controls --contestant %s --seed %d --for 1ms", shellQuote(o.Contestant.Name), o.Seed)
	if isProgram(o.Contestant.Name) {
		text += " --store " + l.store.value
	}
	if len(o.Plan) > 0 {
		text += " --plan " + arena.FormatPlan(o.Plan)
	}
	return text
}

func (l *labCommand) toVerdict(o arena.Outcome) verdictJSON {
	v := verdictJSON{
		Contestant: o.Contestant.Name, Title: o.Contestant.Title, Library: o.Contestant.Library, Version: o.Contestant.Version,
		Settings: o.Contestant.Settings, Server: o.Server, Control: o.Contestant.IsControl(), Expected: string(o.Contestant.Want),
		Seed: o.Seed, Repeat: l.repeat(o), Bouts: o.Bouts, Took: seconds(o.Took), Faults: []faultCountJSON{}, Schedule: []faultTimeJSON{}, Acquired: o.Acquired,
		Overlaps: o.Overlaps, Overlap: seconds(o.Overlap()), ToldLate: seconds(o.ToldLate), Damage: o.Damage, Fenced: o.Fenced, HasTokens: o.Tokens,
		Back: o.Back, Blocked: o.Blocked, Leaked: o.Leaked, Starved: o.Starved, Unknown: o.Unknown, Excused: o.Excused, Assumption: o.Assumption,
	}
	v.LastErrors = o.LastErrors()
	v.Commands, v.InCrowd, v.Connections = median(o.PerHold), median(o.InCrowds()), median(o.Connections)
	for _, s := range o.Contestant.Statements {
		v.Statements = append(v.Statements, statementJSON{s.Text, s.Page, s.Excludes})
	}
	for _, name := range slices.Sorted(maps.Keys(o.Faults)) {
		v.Faults = append(v.Faults, faultCountJSON{name, o.Faults[name]})
	}
	for _, f := range o.Schedule() {
		line := faultTimeJSON{Name: f.Name, Client: f.Client, Begin: seconds(f.Begin)}
		if f.Ended {
			end := seconds(f.End)
			line.End = &end
		}
		v.Schedule = append(v.Schedule, line)
	}
	if o.Err != nil {
		v.Error = message(o.Err)
		return v
	}
	if o.Late != nil {
		v.Error = message(o.Late)
	}
	v.Verdict, v.Text, v.Convicted = string(o.Verdict()), o.Text(), o.Convicted()
	return v
}

// median returns the median as a document has it: nil if there are no numbers.
func median(numbers []float64) *float64 {
	n, ok := judge.Median(numbers)
	if !ok {
		return nil
	}
	n = math.Round(n*100) / 100
	return &n
}

// serveContestant is the process of a contestant that comes with snib.
func serveContestant(name string) error {
	if slices.ContainsFunc(labContestants(), func(c arena.Contestant) bool { return c.Name == name }) {
		open := openLabDriver
		if name == postgresSessions {
			open = openLabSessions
		}
		return contestant.Serve(os.Stdin, os.Stdout, func(ctx context.Context, m contestant.Message) (contestant.Locker, error) {
			d, err := openPatiently(ctx, m, open)
			if err != nil {
				return nil, err
			}
			locker, err := snib.New(d, snib.TTL(time.Duration(m.TTL)*time.Millisecond))
			if err != nil {
				return nil, err
			}
			return labLocker{locker, m.Name}, nil
		})
	}
	if err := arena.ServePattern(name, os.Stdin, os.Stdout); err != nil {
		return usagef("%w; see snib lab list", err)
	}
	return nil
}

// openPatience is for how long a contestant tries to open a store that does not answer: it may be
// started while the servers still recover from a fault.
const openPatience = 20 * time.Second

// openPause is between two tries.
const openPause = 100 * time.Millisecond

// openPatiently opens a store with open, again and again while the store does not answer.
func openPatiently(ctx context.Context, m contestant.Message, open func(context.Context, contestant.Message) (snib.Driver, error)) (snib.Driver, error) {
	for began := time.Now(); ; {
		d, err := open(ctx, m)
		if !errors.Is(err, snib.ErrUnavailable) || time.Since(began) > openPatience {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(openPause):
		}
	}
}

// A labLocker is snib as a contestant.
type labLocker struct {
	locker *snib.Locker
	name   string
}

func openLabDriver(ctx context.Context, m contestant.Message) (snib.Driver, error) {
	s, err := backend.Open(ctx, m.URL, backend.Take)
	if err != nil {
		return nil, err
	}
	return s.Driver, nil
}

func openLabSessions(ctx context.Context, m contestant.Message) (snib.Driver, error) {
	pool, err := pgxpool.New(ctx, m.URL)
	if err != nil {
		return nil, err
	}
	return pglock.NewSession(pool, pglock.Timeout(time.Duration(m.TTL)*time.Millisecond))
}

// Acquire implements [contestant.Locker].
func (l labLocker) Acquire(ctx context.Context, wait time.Duration) (contestant.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lock, err := l.locker.Acquire(ctx, l.name)
	switch {
	case err == nil:
		return labHold{lock}, nil
	case errors.Is(err, snib.ErrHeld) || errors.Is(err, context.DeadlineExceeded):
		return nil, contestant.ErrDenied
	}
	return nil, err
}

// A labHold is a hold of snib.
type labHold struct{ *snib.Lock }

// Held implements [contestant.Hold].
func (h labHold) Held() bool { return h.Validity() > 0 }

// Release implements [contestant.Hold].
func (h labHold) Release(context.Context) error { return h.Lock.Release() }
