package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/timeline"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/internal/history"
)

const ms = int64(time.Millisecond)

// holds returns events of two holds: A's, from 100 to 500 ms, and B's, which begins at b.
func holds(b int64) []history.Event {
	const id = 1<<32 | 1 // of client B
	return []history.Event{
		{Kind: history.Start, Worker: "A", At: 1}, {Kind: history.Start, Worker: "B", At: 1},
		{Kind: history.Call, Worker: "A", ID: 1, At: 90 * ms, Any: true},
		{Kind: history.Acquired, Worker: "A", ID: 1, At: 100 * ms, Token: 1}, {Kind: judge.Read, Worker: "A", ID: 1, At: 100 * ms},
		{Kind: history.Call, Worker: "B", ID: id, At: 95 * ms, Any: true},
		{Kind: history.Acquired, Worker: "B", ID: id, At: b, Token: 2}, {Kind: judge.Read, Worker: "B", ID: id, At: b},
		{Kind: history.Valid, Worker: "A", ID: 1, At: 499 * ms}, {Kind: judge.Write, Worker: "A", ID: 1, At: 500 * ms},
		{Kind: history.Release, Worker: "A", ID: 1, At: 500 * ms},
		{Kind: history.Call, Worker: "B", ID: id + 1, At: 650 * ms, Any: true},
		{Kind: history.Begin, Worker: "B", ID: 9, Fault: history.KillWorker, At: 700 * ms},
		{Kind: history.Heal, At: 800 * ms},
		{Kind: history.Valid, Worker: "B", ID: id, At: 690 * ms},
		{Kind: history.Call, Worker: "A", ID: 2, At: 3000 * ms, Any: true},
	}
}

// smallerToken returns events of which the last is a grant with a token that is not greater than
// those before it.
func smallerToken() []history.Event {
	const id = 1<<32 | 2 // of client B
	events := slices.DeleteFunc(holds(600*ms),
		func(e history.Event) bool { return e.Kind == history.Heal || e.Kind == history.Begin })
	return append(events, history.Event{Kind: history.Acquired, Worker: "B", ID: id, At: 660 * ms, Token: 1})
}

// metas matches the elements that HTML does not close.
var metas = regexp.MustCompile("<meta [^>]*>")

// TestPage checks the page for each kind of outcome: that it is well-formed, and what it shows.
func TestPage(t *testing.T) {
	tests := []struct {
		name    string
		outcome trial.Outcome
		want    []string
		not     string
	}{
		{"Overlap", outcome(slices.DeleteFunc(holds(300*ms), func(e history.Event) bool { return e.Kind == history.Heal }), judge.Rules{}),
			[]string{"overlap of 199 ms", "From 0.300 s to 0.499 s, A and B both believed", `<rect class="many"`}, ""},
		{"Blocked", outcome(holds(600*ms), judge.Rules{Bound: time.Second}), []string{"blocked for ever", "B was the last to get the lock, at 0.600 s", `class="death"`,
			`<rect class="waiting" x="146" y="109" width="8"`, `<rect class="waiting" x="528" y="51" width="422"`}, `class="many"`}, // without an answer
		{"TokensGoBack", outcome(smallerToken(), judge.Rules{Tokens: true}), []string{
			"B got the lock with token 2 at 0.600 s, and then B got it with token 1 at 0.660 s.", "class=\"\">token 1<"}, `class="many"`},
		{"Errors", trial.Outcome{Result: judge.Result{Blocked: true, Errors: []string{"no <password>"}}}, []string{"<li>no &lt;password&gt;</li>"}, "<svg"},
		{"GoodWithErrors", trial.Outcome{Result: judge.Result{Acquired: 1, Errors: []string{"no port 7"}}}, []string{"safe"}, "no port 7"},
		{"Error", trial.Outcome{Err: errors.New("a <bad> program")}, []string{"not judged", "a &lt;bad&gt; program"}, "<svg"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.outcome.Target = trial.Target{Name: `"it" <b>`, Title: "A & B"}
			err := Write(&out, Page{Repeat: func(trial.Outcome) string { return "sniblab run" }}, []trial.Outcome{tt.outcome})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range append(tt.want, "A &amp; B", `<a href="#o0">&#34;it&#34; &lt;b&gt;</a>`, `<section id="o0">`) {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the page does not have %q:\n%s", want, &out)
				}
			}
			if tt.not != "" && strings.Contains(out.String(), tt.not) {
				t.Errorf("the page has %q", tt.not)
			}
			decoder := xml.NewDecoder(strings.NewReader(metas.ReplaceAllString(out.String(), "")))
			decoder.Strict = false
			for err == nil {
				_, err = decoder.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if strings.Contains(out.String(), "src=") || strings.Contains(out.String(), "<link") || strings.Contains(out.String(), "<script") {
				t.Error("the page has external parts, or a script")
			}
		})
	}
}

// TestCosts checks that the table has what a hold costs, and a dash where that is not known.
func TestCosts(t *testing.T) {
	for _, tt := range []struct {
		result judge.Result
		want   string
	}{
		{judge.Result{}, `<td class="n">–</td><td class="n">–</td><td class="n">–</td></tr>`},
		{judge.Result{PerHold: []float64{9, 5, 5.2}, Crowds: []judge.Crowd{{PerHold: 14}}, Connections: []float64{2}},
			`<td class="n">5.2</td><td class="n">14.0</td><td class="n">2.0</td></tr>`},
	} {
		var out bytes.Buffer
		if err := Write(&out, Page{Repeat: func(trial.Outcome) string { return "" }}, []trial.Outcome{{Result: tt.result}}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("the page does not have %q:\n%s", tt.want, &out)
		}
	}
}

// TestColumns checks that the table has what leads to a verdict, also if a worse one hides it.
func TestColumns(t *testing.T) {
	r := judge.Result{ToldLate: 70 * time.Millisecond, Untold: 90 * time.Millisecond, Damage: 2, Leaked: 3,
		Starved: 4, Unknown: 5}
	var out bytes.Buffer
	if err := Write(&out, Page{Repeat: func(trial.Outcome) string { return "" }}, []trial.Outcome{{Result: r, Trials: 6}}); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`<th class="n">([^<]*)</th>`).FindAllStringSubmatch(out.String(), -1)
	values := regexp.MustCompile(`<td class="n">([^<]*)</td>`).FindAllStringSubmatch(out.String(), -1)
	if len(names) != len(values) {
		t.Fatalf("%d columns, and %d values", len(names), len(values))
	}
	got := make(map[string]string)
	for i, name := range names {
		got[name[1]] = values[i][1]
	}
	for name, want := range map[string]string{
		"longest": "90 ms", "told late": "70 ms", "lost writes": "2", "with tokens": "–", "leaked": "3", "starved": "4",
		"unknown": "5", "trials": "6",
	} {
		if got[name] != want {
			t.Errorf("column %q has %q, want %q", name, got[name], want)
		}
	}
}

// TestLibrary checks that the page says with which settings and on which server a library was run,
// and what its documentation says.
func TestLibrary(t *testing.T) {
	var out bytes.Buffer
	c := trial.Target{Name: "x", Title: "x 1.2, in C", Library: "x", Settings: "TTL < 1 s", Statements: []trial.Statement{
		{Text: "clocks & leases", Page: "https://x/?a&b", Excludes: []string{"pause", "cut"}}, {Text: "nothing else", Page: "https://y"},
	}}
	if err := Write(&out, Page{Repeat: func(trial.Outcome) string { return "" }}, []trial.Outcome{{Target: c, Server: "Redis <7>"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"x 1.2, in C. ", "<p>Server: Redis &lt;7&gt;.</p>", "Settings: TTL &lt; 1 s.", `<li>clocks &amp; leases (<a href="https://x/?a&amp;b">page</a>). This excludes the faults pause, cut</li>`,
		`<li>nothing else (<a href="https://y">page</a>)</li>`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page does not have %q:\n%s", want, &out)
		}
	}
}

// TestInterrupted checks that the page says that the run was interrupted.
func TestInterrupted(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		var out bytes.Buffer
		if err := Write(&out, Page{Interrupted: interrupted}, nil); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "This run was interrupted."); got != interrupted {
			t.Errorf("the page says that it was interrupted: %v, want %v", got, interrupted)
		}
	}
}

// TestToldLate checks that the bar of a holder that was told of its loss ends where the overlap
// does that the verdict counts.
func TestToldLate(t *testing.T) {
	events := append(holds(300*ms), history.Event{Kind: history.Told, Worker: "A", ID: 1, At: 510 * ms})
	events = slices.DeleteFunc(events, func(e history.Event) bool {
		return e.Kind == history.Heal || e.Worker == "A" && (e.Kind == judge.Write || e.Kind == history.Release)
	})
	o := outcome(events, judge.Rules{})
	if o.Text() != "told late by 199 ms" {
		t.Fatalf("the verdict is %q", o.Text())
	}
	_, chart, _ := Picture(o)
	var ends []time.Duration
	for _, s := range chart.Spans {
		if s.Lane == "A" && (s.Kind == timeline.Belief || s.Kind == timeline.Overlap) {
			ends = append(ends, s.Until)
		}
	}
	if want := 499 * time.Millisecond; !slices.Equal(ends, []time.Duration{want, want}) {
		t.Errorf("the bars of A end at %v, want both at %v", ends, want)
	}
}

func outcome(events []history.Event, rules judge.Rules) trial.Outcome {
	return trial.Outcome{Result: judge.Judge(events, rules), Events: events}
}
