package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/lab/scene"
	"github.com/sniblock/snib/lab/timeline"
)

// manual is where the pages are that scenes name.
const manual = "https://github.com/sniblock/snib/blob/main/"

// A demoCommand is one call of "snib demo".
type demoCommand struct {
	*app
	list bool
	svg  string
}

func (a *app) newDemoCommand() *cobra.Command {
	d := &demoCommand{app: a}
	cmd := &cobra.Command{
		Use:     "demo [SCENE]",
		Short:   "show how locks fail, and what helps, on a real server",
		Example: demoExamples,
		Long:    demoNotes,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q is one argument too many: usage: %s", args[1], usageLine(cmd))
			}
			return nil
		},
		ValidArgsFunction: completeScene,
	}
	cmd.Flags().BoolVarP(&d.list, "list", "l", false, "list the scenes, as without SCENE")
	cmd.Flags().StringVar(&d.svg, "svg", "", "also draw the timeline into `FILE`")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if d.list || len(args) == 0 {
			return d.printf("%s", listScenes(scene.All()))
		}
		for _, s := range scene.All() {
			if s.Name == args[0] {
				// SIGPIPE would end the program without the folders of its servers being removed.
				ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
				defer stop()
				return d.play(ctx, s)
			}
		}
		return unknownScene(args[0])
	}
	return cmd
}

// listScenes returns a table of scenes.
func listScenes(all []scene.Scene) string {
	var b strings.Builder
	for _, s := range all {
		writeTerm(&b, s.Name, s.Title, 20)
	}
	b.WriteString("\nRun one with: snib demo " + all[0].Name + "\n")
	return b.String()
}

// unknownScene returns the error for a scene that does not exist, with similar names.
func unknownScene(name string) error {
	all := &cobra.Command{SuggestionsMinimumDistance: 3}
	for _, s := range scene.All() {
		all.AddCommand(&cobra.Command{Use: s.Name, Run: func(*cobra.Command, []string) {}})
	}
	if like := all.SuggestionsFor(name); len(like) > 0 {
		return usagef("there is no scene %q; did you mean %s?", name, strings.Join(like, " or "))
	}
	return usagef("there is no scene %q; see snib demo --list", name)
}

func completeScene(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, s := range scene.All() {
			names = append(names, cobra.CompletionWithDesc(s.Name, s.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// play plays a scene on the screen.
func (d *demoCommand) play(ctx context.Context, s scene.Scene) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := newViewer(d.out, s, cancel)
	var file *os.File
	if d.svg != "" { // created now, and not after the scene, which takes its time
		if file, err = os.Create(d.svg); err != nil {
			return failf(exitOutput, "--svg: %w", err)
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				_ = os.Remove(d.svg) // there is no timeline in it
			}
		}()
	}
	v.title(s)
	err = scene.Run(ctx, s, v)
	if errors.Is(v.failed, syscall.EPIPE) {
		return silentExit(exitSignal + int(syscall.SIGPIPE)) // the reader has seen enough
	}
	if err != nil {
		return demoError(err)
	}
	v.advise(s)
	if file != nil && v.failed == nil {
		if _, err = v.drawing.WriteTo(file); err != nil {
			return failf(exitOutput, "--svg: %w", err)
		}
	}
	return v.failed
}

// demoError returns the error for a scene that was not played to its end.
func demoError(err error) error {
	if missing, ok := errors.AsType[*scene.MissingError](err); ok {
		return failf(exitUnavailable, "%s", installHint(missing))
	}
	if errors.Is(err, context.Canceled) {
		return silentExit(exitSignal + int(syscall.SIGINT))
	}
	return err
}

// installHint says what to install for a scene, or for the lab.
func installHint(e *scene.MissingError) string {
	packages := map[string]string{"redis": "redis-server", "postgres": "postgresql", "zookeeper": "zookeeper", "mysql": "mariadb-server", "etcd": "etcd-server"}
	name := packages[e.Server]
	if name == "" {
		return e.Error()
	}
	return fmt.Sprintf("%s; it is needed to start a server (Debian, Ubuntu: apt install %s)", e, name)
}

// A viewer shows a scene. It implements [scene.Audience].
type viewer struct {
	out     io.Writer
	width   int // of text
	table   *timeline.Writer
	drawing *timeline.Drawing
	gap     bool                    // an empty line is due before the timeline
	stop    context.CancelCauseFunc // ends the scene
	failed  error                   // the first error of out
}

var (
	heading = ansi.NewStyle().Bold()
	good    = ansi.NewStyle().ForegroundColor(ansi.Green).Bold()
	bad     = ansi.NewStyle().ForegroundColor(ansi.Red).Bold()
)

// newViewer returns a viewer that shows a table with colors if standard output is a terminal.
func newViewer(w io.Writer, s scene.Scene, stop context.CancelCauseFunc) *viewer {
	out := &colorprofile.Writer{Forward: outputWriter{w}, Profile: colorprofile.NoTTY}
	columns, width := 0, 79
	if child.IsTerminal(os.Stdout) {
		out.Profile = colorprofile.Detect(os.Stdout, os.Environ())
		columns = child.Width(os.Stdout)
		width = min(columns, 100)
	}
	return &viewer{
		out: out, width: width, stop: stop,
		table: timeline.NewWriter(out, s.Lanes(), columns), drawing: timeline.NewDrawing(s.Lanes()),
	}
}

func (v *viewer) title(s scene.Scene) {
	v.print("%s\n\n%s\n\n%s\n", heading.Styled(s.Name+": "+s.Title), v.wrap(s.Story), v.wrap(scene.Job))
	v.drawing.Text("title", s.Title)
	v.drawing.Text("", s.Story)
	v.drawing.Text("", scene.Job)
}

// Begin implements [scene.Audience].
func (v *viewer) Begin(a scene.Act) {
	label, kind, style := labelOf(a)
	v.print("\n%s%s\n", style.Styled(label), heading.Styled(a.Title))
	v.gap = true
	v.table.Begin()
	v.drawing.Text(kind, label+a.Title)
	v.drawing.Begin()
}

// labelOf returns what stands before the title of an act, its kind in a drawing, and its
// style on the screen.
func labelOf(a scene.Act) (label, kind string, style ansi.Style) {
	if a.Right {
		return "Right: ", "right", good
	}
	return "Broken: ", "broken", bad
}

// Starting implements [scene.Audience].
func (v *viewer) Starting(server string) { v.print("Starting %s …\n", server) }

// Event implements [scene.Audience].
func (v *viewer) Event(e timeline.Event) {
	if v.gap {
		v.print("\n")
		v.gap = false
	}
	v.table.Event(e)
	v.check(v.table.Err())
	v.drawing.Event(e)
}

// End implements [scene.Audience].
func (v *viewer) End(a scene.Act, r scene.Result) {
	_, kind, style := labelOf(a)
	damage := "Damage: " + r.Damage.String() + "."
	v.print("\n%s\n", v.wrap(style.Styled(damage)+" "+r.String()))
	v.drawing.Text(kind, damage+" "+r.String())
	v.drawing.Text("", "") // a gap
}

// advise says what to use.
func (v *viewer) advise(s scene.Scene) {
	v.print("\n%s\n%s%s\n", v.wrap(heading.Styled("Use: ")+s.Advice), manual, s.Page)
	v.drawing.Text("", "Use: "+s.Advice)
	v.drawing.Text("", manual+s.Page)
}

func (v *viewer) wrap(text string) string { return ansi.Wordwrap(text, v.width, "") }

func (v *viewer) print(format string, args ...any) {
	if v.failed == nil {
		_, err := fmt.Fprintf(v.out, format, args...)
		v.check(err)
	}
}

// check ends the scene if nobody can see it.
func (v *viewer) check(err error) {
	if err != nil && v.failed == nil {
		v.failed = err
		v.stop(err)
	}
}
