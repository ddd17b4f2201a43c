package main

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

	"github.com/sniblock/snib/cmd/sniblab/internal/demo"
	"github.com/sniblock/snib/cmd/sniblab/internal/timeline"
)

// manual is where the pages are that demos name.
const manual = "https://github.com/sniblock/snib/blob/main/"

const demoNotes = `Each demo tells how a lock fails. It starts a server of its own, and a process
for each client, and runs twice: first with the broken lock, whose damage it
counts, then with the right one. It touches no store of yours. A demo takes up
to 20 s. It needs the server's program, and Linux.

The name of a client under "holds" means that it believes that it holds the
lock. Two at a time are wrong.`

func newDemoCommand() *cobra.Command {
	var svg string
	cmd := &cobra.Command{
		Use: "demo [DEMO]", Short: "show how locks fail, and what helps, on a real server; without DEMO, list the demos", Long: demoNotes,
		Example: "  sniblab demo setnx-expire\n  sniblab demo get-del --svg get-del.svg",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: completeDemo,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprint(cmd.OutOrStdout(), listDemos(demo.All()))
				return printed(err)
			}
			for _, s := range demo.All() {
				if s.Name == args[0] {
					// SIGPIPE would end the program without the folders of its servers being removed.
					ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
						syscall.SIGPIPE)
					defer stop()
					return runDemo(ctx, s, svg)
				}
			}
			return usagef("there is no demo %q; see sniblab demo", args[0])
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "also draw the timeline into `FILE`")
	return cmd
}

// listDemos returns a table of demos.
func listDemos(all []demo.Demo) string {
	var b strings.Builder
	for _, s := range all {
		writeTerm(&b, s.Name, s.Title, 20)
	}
	b.WriteString("\nRun one with: sniblab demo " + all[0].Name + "\n")
	return b.String()
}

func completeDemo(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, s := range demo.All() {
			names = append(names, cobra.CompletionWithDesc(s.Name, s.Title))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// run runs a demo on the screen.
func runDemo(ctx context.Context, s demo.Demo, svg string) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := newViewer(os.Stdout, s, cancel)
	var file *os.File
	if svg != "" { // created now, and not after the demo, which takes its time
		if file, err = os.Create(svg); err != nil {
			return failf(exitOutput, "--svg: %w", err)
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				_ = os.Remove(svg) // there is no timeline in it
			}
		}()
	}
	v.title(s)
	err = demo.Run(ctx, s, v)
	if v.failed != nil {
		return printed(v.failed)
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
	return printed(v.failed)
}

// demoError returns the error for a demo that was not run to its end.
func demoError(err error) error {
	if missing, ok := errors.AsType[*demo.MissingError](err); ok {
		return failf(exitUnavailable, "%s", installHint(missing))
	}
	if errors.Is(err, context.Canceled) {
		return silentExit(exitSignal + int(syscall.SIGINT))
	}
	return err
}

// A viewer shows a demo. It implements [demo.Observer].
type viewer struct {
	out     io.Writer
	width   int // of text
	table   *timeline.Writer
	drawing *timeline.Drawing
	gap     bool                    // an empty line is due before the timeline
	stop    context.CancelCauseFunc // ends the demo
	failed  error                   // the first error of out
}

var (
	heading = ansi.NewStyle().Bold()
	good    = ansi.NewStyle().ForegroundColor(ansi.Green).Bold()
	bad     = ansi.NewStyle().ForegroundColor(ansi.Red).Bold()
)

// newViewer returns a viewer, with colors if standard output is a terminal.
func newViewer(w io.Writer, s demo.Demo, stop context.CancelCauseFunc) *viewer {
	out := &colorprofile.Writer{Forward: w, Profile: colorprofile.NoTTY}
	width := 79
	if n := terminalWidth(os.Stdout); n > 0 {
		out.Profile = colorprofile.Detect(os.Stdout, os.Environ())
		width = min(n, 100)
	}
	return &viewer{
		out: out, width: width, stop: stop,
		table: timeline.NewWriter(out, s.Lanes()), drawing: timeline.NewDrawing(s.Lanes()),
	}
}

func (v *viewer) title(s demo.Demo) {
	v.print("%s\n\n%s\n\n%s\n", heading.Styled(s.Name+": "+s.Title), v.wrap(s.Story), v.wrap(demo.Job))
	v.drawing.Text("title", s.Title)
	v.drawing.Text("", s.Story)
	v.drawing.Text("", demo.Job)
}

// Begin implements [demo.Observer].
func (v *viewer) Begin(a demo.Variant) {
	label, kind, style := labelOf(a)
	v.print("\n%s%s\n", style.Styled(label), heading.Styled(a.Title))
	v.gap = true
	v.table.Begin()
	v.drawing.Text(kind, label+a.Title)
	v.drawing.Begin()
}

// labelOf returns what stands before the title of a variant, its kind in a drawing, and its
// style on the screen.
func labelOf(a demo.Variant) (label, kind string, style ansi.Style) {
	if a.Right {
		return "Right: ", "right", good
	}
	return "Broken: ", "broken", bad
}

// Starting implements [demo.Observer].
func (v *viewer) Starting(server string) { v.print("Starting %s …\n", server) }

// Event implements [demo.Observer].
func (v *viewer) Event(e timeline.Event) {
	if v.gap {
		v.print("\n")
		v.gap = false
	}
	v.table.Event(e)
	v.check(v.table.Err())
	v.drawing.Event(e)
}

// End implements [demo.Observer].
func (v *viewer) End(a demo.Variant, r demo.Result) {
	_, kind, style := labelOf(a)
	damage := "Damage: " + r.Damage.String() + "."
	v.print("\n%s\n", v.wrap(style.Styled(damage)+" "+r.String()))
	v.drawing.Text(kind, damage+" "+r.String())
	v.drawing.Text("", "") // a gap
}

// advise says what to use.
func (v *viewer) advise(s demo.Demo) {
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

// check ends the demo if nobody can see it.
func (v *viewer) check(err error) {
	if err != nil && v.failed == nil {
		v.failed = err
		v.stop(err)
	}
}
