package main

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

// A verdictJSON is one line of "sniblab run --json". Durations are in seconds.
type verdictJSON struct {
	Target     string         `json:"target"`                // its name, or that of its program
	Title      string         `json:"title"`                 // what it is
	Control    bool           `json:"control"`               // whether it is broken on purpose
	Verdict    string         `json:"verdict,omitempty"`     // missing if it could not be judged
	Text       string         `json:"text,omitempty"`        // the verdict in words, such as `overlap of 238 ms`
	Evidence   string         `json:"evidence,omitempty"`    // what decided about the verdict
	Assumption string         `json:"assumption,omitempty"`  // the first that excuses something
	Rejected   bool           `json:"rejected"`              // whether the verdict is against it; also false if it could not be judged: look at `error` first
	Error      string         `json:"error,omitempty"`       // why it could not be judged; beside a verdict, why it was run no further
	LastErrors []string       `json:"last_errors,omitempty"` // the last texts of its `error` messages, the latest one last, if it is blocked or never got the lock
	Seed       uint64         `json:"seed"`                  // of the trial that decided, or that could not be judged
	Repeat     string         `json:"repeat"`                // the command that runs that trial again
	Trials     int            `json:"trials"`                // the number of trials
	Took       float64        `json:"took"`                  // the duration of all trials
	Acquired   int            `json:"acquired"`              // the number of holds
	Faults     map[string]int `json:"faults"`                // how often each fault was injected
}

func (l *runCommand) toVerdict(o trial.Outcome) verdictJSON {
	v := verdictJSON{
		Target: o.Target.Name, Title: o.Target.Title, Control: o.Target.IsControl(),
		Evidence: o.Evidence.String(), Assumption: o.Assumption, LastErrors: o.LastErrors(), Seed: o.Seed,
		Repeat: l.repeat(o), Trials: o.Trials, Took: o.Took.Round(time.Millisecond).Seconds(), Acquired: o.Acquired,
		Faults: o.Faults,
	}
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
