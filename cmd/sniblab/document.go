package main

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

// A verdictJSON is one line of "sniblab run --json". Durations are in seconds.
type verdictJSON struct {
	Target     string            `json:"target"`                // its name, or that of its program
	Title      string            `json:"title"`                 // what it is
	Library    string            `json:"library,omitempty"`     // the library of others that it locks with
	Version    string            `json:"version,omitempty"`     // the version of the library
	Settings   string            `json:"settings,omitempty"`    // the settings that differ from the defaults, and what answers whether the lock is held
	Server     string            `json:"server,omitempty"`      // the name and version of the servers of its store. Missing if there are none, or they did not start
	Statements []trial.Statement `json:"statements,omitempty"`  // what the documentation of the library says that the lock rests on
	Control    bool              `json:"control"`               // whether it is broken on purpose
	Expected   string            `json:"expected,omitempty"`    // the verdict that a control must get
	Verdict    string            `json:"verdict,omitempty"`     // one of `safe`, `safe-assuming`, `safe-fenced`, `unfenced`, `leaks`, `tokens`, `told-late`, `overlap`, `blocked`. Missing if it could not be judged
	Text       string            `json:"text,omitempty"`        // the verdict in words, such as `overlap of 238 ms`
	Rejected   bool              `json:"rejected"`              // whether the verdict is against it; also false if it could not be judged: look at `error` first
	Error      string            `json:"error,omitempty"`       // why it could not be judged; beside a verdict, why it was run no further
	LastErrors []string          `json:"last_errors,omitempty"` // the last texts of its `error` messages, the latest one last, if it is blocked or never got the lock
	Evidence   string            `json:"evidence,omitempty"`    // what decided about the verdict
	Seed       uint64            `json:"seed"`                  // of the trial that decided, or that could not be judged
	Repeat     string            `json:"repeat"`                // the command that runs that trial again
	Trials     int               `json:"trials"`                // the number of trials
	Took       float64           `json:"took"`                  // the duration of all trials
	Acquired   int               `json:"acquired"`              // the number of holds
	Faults     map[string]int    `json:"faults"`                // how often each fault was injected
	Overlaps   int               `json:"overlaps"`              // pairs of holds that were believed in at the same time
	Overlap    float64           `json:"overlap"`               // the longest of them
	ToldLate   float64           `json:"told_late"`             // the longest that ended because a holder was told of its loss
	Damage     int               `json:"damage"`                // lost writes on the resource that any holder writes
	HasTokens  bool              `json:"tokens"`                // whether the lock gives fencing tokens
	Fenced     int               `json:"damage_fenced"`         // lost writes on the resource that checks tokens; 0 without tokens
	Back       int               `json:"tokens_back"`           // tokens that are not greater than that of an earlier hold
	Blocked    bool              `json:"blocked"`               // whether nobody got the lock any more
	Leaked     int               `json:"leaked"`                // keys without an end that stayed in the store
	Starved    int               `json:"starved"`               // acquisitions that saw 100 grants of others or more
	Unknown    int               `json:"unknown"`               // acquisitions without an answer, which count for nothing
	Excused    int               `json:"excused"`               // overlaps, lost writes and tokens that go back, which a stated assumption excuses
	Assumption string            `json:"assumption,omitempty"`  // the first of these assumptions

}

func (l *runCommand) toVerdict(o trial.Outcome) verdictJSON {
	v := verdictJSON{
		Target: o.Target.Name, Title: o.Target.Title, Library: o.Target.Library, Version: o.Target.Version,
		Settings: o.Target.Settings, Server: o.Server, Control: o.Target.IsControl(), Expected: string(o.Target.Want),
		Seed: o.Seed, Repeat: l.repeat(o), Trials: o.Trials, Took: seconds(o.Took), Faults: o.Faults, Statements: o.Target.Statements,
		Acquired: o.Acquired, Overlaps: o.Overlaps, Overlap: seconds(o.Overlap()),
		ToldLate: seconds(o.ToldLate), Damage: o.Damage, Fenced: o.Fenced, HasTokens: o.Tokens, Back: o.Back,
		Blocked: o.Blocked, Leaked: o.Leaked, Starved: o.Starved, Unknown: o.Unknown, Excused: o.Excused,
		Assumption: o.Assumption, Evidence: o.Evidence.String(),
	}
	v.LastErrors = o.LastErrors()
	if o.Err != nil {
		v.Error = message(o.Err)
		return v
	}
	if o.Late != nil {
		v.Error = message(o.Late)
	}
	v.Verdict, v.Text, v.Rejected = string(o.Verdict()), o.Text(), o.Rejected()
	return v
}

func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
