// Package report shows the outcomes of the lab as one HTML page without external parts, with a
// chart of how each target failed.
package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/timeline"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/internal/history"
)

// A Page is what the page says besides the outcomes.
type Page struct {
	Version string // of the program
	When    time.Time
	Seed    uint64
	Void    bool // a control did not get its verdict

	// Interrupted says that the run ended early, so that targets may be missing.
	Interrupted bool

	// Repeat returns the command that runs the decisive trial of an outcome again.
	Repeat func(trial.Outcome) string
}

const head = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>sniblab</title><style>
:root { color-scheme: light dark; --text: #222; --back: #fff; --line: #ddd; --code: #f2f3f5; --good: #1b7f3b; --bad: #b00020 }
@media (prefers-color-scheme: dark) {
:root { --text: #e3e3e3; --back: #161719; --line: #44474b; --code: #2a2c30; --good: #57c47a; --bad: #ff7b88 }
a { color: #8ab8ff }
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 66em; padding: 0 1em; color: var(--text); background: var(--back); overflow-wrap: anywhere }
div { overflow-x: auto; margin: 1em 0 } td, th, code { overflow-wrap: break-word }
table { border-collapse: collapse } td, th { padding: .25em .7em; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top }
.n { text-align: right } td:first-child { min-width: 8em; max-width: 24em } td.good, td.bad { min-width: 10em }
.good { color: var(--good); font-weight: bold } .bad { color: var(--bad); font-weight: bold }
code { background: var(--code); padding: .1em .3em } svg { box-sizing: border-box; width: 100%; min-width: 48em; height: auto; border: 1px solid var(--line) }
section { margin-top: 2.5em }
</style></head><body>
`

const columns = `<p>Told late is the longest overlap of which a holder was told. Leaked are keys that never end and are left in a single
Redis server. Starved are acquisitions during which others got the lock at least 100 times, and unknown those without an answer.</p>
`

const legend = `<h2>How to read the pictures</h2>
<p>Each client has a lane, and time goes to the right. A bar means that the client believed that it held the lock: green, or red
while another one believed so, too. It ends when the client was last asked and answered that it still held the lock; that it was told
of the loss may have reached the judge up to 20 ms later. The bar is gray while the process was stopped, which the verdict's number leaves
out. The verdict has the longest overlap of all trials; the picture may be of another trial, which fails with fewer faults. A thin line
means that the client waited for the lock.
A circle is a read of the resource, at the begin of a hold, and a triangle is the write at its end; a red one overwrote another
write. A cross is a kill. The last lane shows faults of the store and of the network.</p>
`

// Write writes the page.
func Write(out io.Writer, p Page, outcomes []trial.Outcome) error {
	var b bytes.Buffer
	b.WriteString(head)
	fmt.Fprintf(&b, "<h1>sniblab</h1>\n<p>snib %s, %s, seed %d, TTL %v.</p>\n", html.EscapeString(p.Version), p.When.UTC().Format(time.RFC3339), p.Seed, trial.TTL)
	if p.Void {
		b.WriteString("<p class=\"bad\">This run is void: a control did not get the verdict that it must get, so the other verdicts say nothing.</p>\n")
	}
	if p.Interrupted {
		b.WriteString("<p class=\"bad\">This run was interrupted. The page has what was judged until then.</p>\n")
	}
	controls, targets := split(outcomes)
	writeTable(&b, "Targets", targets, 0)
	writeTable(&b, "Controls: broken patterns, which the lab must reject", controls, len(targets))
	b.WriteString(columns)
	b.WriteString("<h2>The verdicts</h2>\n<div><table>\n")
	for _, e := range judge.Verdicts() {
		fmt.Fprintf(&b, "<tr><td><code>%s</code><br/>%s</td><td>%s</td></tr>\n", e.Verdict, e.Short, html.EscapeString(e.Long))
	}
	b.WriteString("</table></div>\n")
	b.WriteString(legend)
	for i, o := range slices.Concat(targets, controls) {
		writeOutcome(&b, p, i, o)
	}
	b.WriteString("</body></html>\n")
	_, err := b.WriteTo(out)
	return err
}

func split(outcomes []trial.Outcome) (controls, targets []trial.Outcome) {
	for _, o := range outcomes {
		if o.Target.IsControl() {
			controls = append(controls, o)
		} else {
			targets = append(targets, o)
		}
	}
	return controls, targets
}

// verdict returns the verdict with its class.
func verdict(o trial.Outcome) (class, text string) {
	switch {
	case o.Err != nil:
		return "bad", "not judged"
	case o.Rejected():
		return "bad", o.Text()
	}
	return "good", o.Text()
}

// writeTable writes a table of outcomes, the first of which has the given number on the page.
func writeTable(b *bytes.Buffer, title string, outcomes []trial.Outcome, first int) {
	if len(outcomes) == 0 {
		return
	}
	fmt.Fprintf(b, "<h2>%s</h2>\n<div><table>\n<tr><th>name</th><th>verdict</th>", title)
	for _, column := range []string{"acquired", "faults", "overlaps", "longest", "told late", "lost writes", "with tokens",
		"leaked", "starved", "unknown", "trials", "commands per hold", "in a crowd", "connections"} {
		fmt.Fprintf(b, "<th class=\"n\">%s</th>", column)
	}
	b.WriteString("</tr>\n")
	for i, o := range outcomes {
		class, text := verdict(o)
		fenced := "–"
		if o.Tokens {
			fenced = fmt.Sprint(o.Fenced)
		}
		fmt.Fprintf(b, "<tr><td><a href=\"#o%d\">%s</a></td><td class=\"%s\">%s</td>", first+i, html.EscapeString(o.Target.Name), class, text)
		for _, n := range []string{
			fmt.Sprint(o.Acquired), fmt.Sprint(sum(o.Faults)), fmt.Sprint(o.Overlaps), fmt.Sprintf("%d ms", o.Overlap().Milliseconds()),
			fmt.Sprintf("%d ms", o.ToldLate.Milliseconds()), fmt.Sprint(o.Damage), fenced, fmt.Sprint(o.Leaked), fmt.Sprint(o.Starved), fmt.Sprint(o.Unknown), fmt.Sprint(o.Trials),
			median(o.PerHold), median(o.InCrowds()), median(o.Connections),
		} {
			fmt.Fprintf(b, "<td class=\"n\">%s</td>", n)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n")
}

// median returns the median of some numbers, or a dash if there are none.
func median(numbers []float64) string {
	n, ok := judge.Median(numbers)
	if !ok {
		return "–"
	}
	return fmt.Sprintf("%.1f", n)
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// writeOutcome writes the section of an outcome, which has a number: names are not unique, and can
// be any text.
func writeOutcome(b *bytes.Buffer, p Page, number int, o trial.Outcome) {
	class, text := verdict(o)
	fmt.Fprintf(b, "<section id=\"o%d\">\n<h2>%s: <span class=\"%s\">%s</span></h2>\n<p>%s. ",
		number, html.EscapeString(o.Target.Name), class, text, html.EscapeString(o.Target.Title))
	fmt.Fprintf(b, "%s</p>\n", html.EscapeString(o.Target.Defect))
	writeLibrary(b, o.Target)
	if o.Server != "" {
		fmt.Fprintf(b, "<p>Server: %s.</p>\n", html.EscapeString(o.Server))
	}
	writeErrors(b, o.LastErrors())
	if o.Err != nil {
		fmt.Fprintf(b, "<p>%s</p>\n</section>\n", html.EscapeString(o.Err.Error()))
		return
	}
	fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(o.Verdict().Explain().Long))
	if o.Late != nil {
		fmt.Fprintf(b, "<p>It was run no further: %s</p>\n", html.EscapeString(o.Late.Error()))
	}
	if o.Assumption != "" {
		fmt.Fprintf(b, "<p>Its assumption: %s.</p>\n", html.EscapeString(o.Assumption))
	}
	var counts []string
	for _, name := range slices.Sorted(maps.Keys(o.Faults)) {
		counts = append(counts, fmt.Sprintf("%s × %d", name, o.Faults[name]))
	}
	fmt.Fprintf(b, "<p>Faults: %s.</p>\n", html.EscapeString(cmp.Or(strings.Join(counts, ", "), "none")))
	if sentence, chart, ok := Picture(o); ok {
		fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(sentence))
		b.WriteString("<div>")
		_, _ = chart.WriteTo(b) // a buffer takes everything
		b.WriteString("</div>\n")
	}
	fmt.Fprintf(b, "<p>Once more: <code>%s</code></p>\n</section>\n", html.EscapeString(p.Repeat(o)))
}

// writeLibrary says with which settings a library was run, and what its documentation says.
func writeLibrary(b *bytes.Buffer, c trial.Target) {
	if c.Library == "" {
		return
	}
	fmt.Fprintf(b, "<p>Settings: %s.</p>\n<p>Its documentation says:</p>\n<ul>\n", html.EscapeString(c.Settings))
	for _, s := range c.Statements {
		fmt.Fprintf(b, "<li>%s (<a href=\"%s\">page</a>)", html.EscapeString(s.Text), html.EscapeString(s.Page))
		if len(s.Excludes) > 0 {
			fmt.Fprintf(b, ". This excludes the faults %s", html.EscapeString(strings.Join(s.Excludes, ", ")))
		}
		b.WriteString("</li>\n")
	}
	b.WriteString("</ul>\n")
}

// writeErrors writes the errors that may tell why nobody got the lock.
func writeErrors(b *bytes.Buffer, errors []string) {
	if len(errors) == 0 {
		return
	}
	b.WriteString("<p>The last errors that it answered:</p>\n<ul>\n")
	for _, text := range errors {
		fmt.Fprintf(b, "<li>%s</li>\n", html.EscapeString(text))
	}
	b.WriteString("</ul>\n")
}

// server is the lane of the store and of the network.
const server = "store"

// Picture returns the chart of what decided about an outcome, and a sentence that explains it. It
// returns false if nothing went wrong.
func Picture(o trial.Outcome) (sentence string, c timeline.Chart, ok bool) {
	holds := history.Holds(o.Events)
	c = timeline.Chart{Lanes: []string{"A", "B", "C", server}}
	switch {
	case o.Blocked && len(holds) > 0:
		last := holds[len(holds)-1]
		sentence = fmt.Sprintf("%s was the last to get the lock, at %s. After that, nobody got it any more, although all clients asked for it.",
			client(last.Worker), seconds(last.Acquired))
		c.From, c.Until = at(last.Acquired)-300*time.Millisecond, at(last.Acquired)+5*trial.TTL
	case o.Worst != nil:
		a, b := o.Worst.Holds[0], o.Worst.Holds[1]
		sentence = fmt.Sprintf("From %s to %s, %s and %s both believed that they held the lock.", seconds(o.Worst.At), seconds(o.Worst.Until), client(a.Worker), client(b.Worker))
		c.From = max(at(a.Acquired)-300*time.Millisecond, at(o.Worst.At)-3*trial.TTL)
		c.Until = at(o.Worst.Until) + 300*time.Millisecond
	case o.Disorder != nil:
		h, before := o.Disorder.Hold, o.Disorder.Before
		sentence = fmt.Sprintf("%s got the lock with token %d at %s, and then %s got it with token %d at %s.",
			client(before.Worker), before.Token, seconds(before.Acquired), client(h.Worker), h.Token, seconds(h.Acquired))
		c.From = max(at(before.Acquired)-300*time.Millisecond, at(h.Acquired)-3*trial.TTL)
		c.Until = at(h.Acquired) + 300*time.Millisecond
	case o.First != nil:
		sentence = fmt.Sprintf("At %s, the write of %s overwrote that of %s, which %[2]s had not seen when it read.", seconds(o.First.At), client(o.First.Hold.Worker), client(o.First.Other.Worker))
		c.From = max(at(o.First.Hold.Acquired)-300*time.Millisecond, at(o.First.At)-3*trial.TTL)
		c.Until = at(o.First.At) + 300*time.Millisecond
	default:
		return "", c, false
	}
	c.Title = sentence
	if slices.ContainsFunc(o.Events, func(e history.Event) bool { return e.Fault == "crowd" }) {
		c.Lanes = slices.Insert(c.Lanes, 3, crowdLane)
	}
	addHolds(&c, holds, o)
	addWaits(&c, o.Events)
	addFaults(&c, o.Schedule())
	return sentence, c, true
}

// client returns the lane of a process.
func client(worker string) string {
	if worker[0] == 'D' {
		return crowdLane
	}
	return worker[:1]
}

func at(ns int64) time.Duration { return time.Duration(ns) }

func seconds(ns int64) string { return fmt.Sprintf("%.3f s", at(ns).Seconds()) }

func addHolds(c *timeline.Chart, holds []*history.Hold, o trial.Outcome) {
	lanes := make(map[[2]any]string) // of holds
	for _, h := range holds {
		// Clients that share a process have the ids of their holds apart.
		lane := laneOf(h.ID)
		lanes[[2]any{h.Worker, h.ID}] = lane
		end := min(h.End, h.Sure) // as the judge has it
		text := ""
		decides := o.Disorder != nil && (same(h, o.Disorder.Hold) || same(h, o.Disorder.Before))
		if h.Token > 0 && (decides || at(end-h.Acquired) > 200*time.Millisecond) {
			text = fmt.Sprint("token ", h.Token)
		}
		c.Spans = append(c.Spans, timeline.Span{Lane: lane, From: at(h.Acquired), Until: at(end),
			Kind: timeline.Belief, Text: text})
		if v := o.Worst; v != nil && (same(h, v.Holds[0]) || same(h, v.Holds[1])) {
			c.Spans = append(c.Spans, timeline.Span{Lane: lane, From: at(v.At), Until: at(v.Until), Kind: timeline.Overlap})
		}
	}
	for _, e := range o.Events {
		mark := timeline.Mark{Lane: lanes[[2]any{e.Worker, e.ID}], At: at(e.At)}
		switch e.Kind {
		case judge.Read:
			mark.Kind = timeline.Read
			c.Marks = append(c.Marks, mark)
		case judge.Write:
			mark.Kind = timeline.Write
			if d := o.First; d != nil && d.At == e.At && same(d.Hold, &history.Hold{Event: e}) {
				mark.Kind, mark.Text = timeline.LostWrite, "overwrites "+client(d.Other.Worker)+"’s write"
			}
			c.Marks = append(c.Marks, mark)
		}
	}
}

// addWaits adds for how long clients waited for the lock: until they had an answer or died, or else
// until the end of the chart.
func addWaits(c *timeline.Chart, events []history.Event) {
	answered := make(map[[2]any]int64)
	died := make(map[string]int64)
	for _, e := range events {
		switch {
		case e.Kind == history.Acquired || e.Kind == history.Failed:
			answered[[2]any{e.Worker, e.ID}] = e.At
		case e.Kind == history.Begin && e.Fault == history.KillWorker:
			died[e.Worker] = e.At
		}
	}
	for _, e := range events {
		if e.Kind != history.Call {
			continue
		}
		until := c.Until
		if end := cmp.Or(answered[[2]any{e.Worker, e.ID}], died[e.Worker]); end > 0 {
			until = at(end)
		}
		c.Spans = append(c.Spans, timeline.Span{Lane: laneOf(e.ID), From: at(e.At), Until: until, Kind: timeline.Waiting})
	}
}

// crowdLane is the lane of all clients of a crowd.
const crowdLane = "crowd"

// laneOf returns the lane of a hold.
func laneOf(id int64) string {
	if n := id >> 32; n < 3 {
		return string("ABC"[n])
	}
	return crowdLane
}

// same reports whether two holds are one.
func same(h, o *history.Hold) bool { return h.Worker == o.Worker && h.ID == o.ID }

func addFaults(c *timeline.Chart, faults []trial.FaultTime) {
	for _, f := range faults {
		span := timeline.Span{Lane: server, From: f.Begin, Until: f.End, Kind: timeline.Fault, Text: f.Name}
		switch {
		case f.Name == history.KillWorker:
			c.Marks = append(c.Marks, timeline.Mark{Lane: client(f.Client), At: f.Begin, Kind: timeline.Death})
		case !f.Ended:
		case f.Name == history.StopWorker:
			span.Lane, span.Kind, span.Text = client(f.Client), timeline.Stopped, "stopped"
			c.Spans = append(c.Spans, span)
		case f.Client == "":
			c.Spans = append(c.Spans, span)
		}
	}
}
