// Package target speaks the protocol between the lab's judge and the programs whose locks it
// judges, from both sides. docs/lab.md specifies it: messages are JSON objects, one per line, on
// standard input and output. [Start] is the judge's side. [Serve] is that of a target in Go.
package target

import "fmt"

// A Type is the type of a message.
type Type string

// Messages of the judge.
const (
	Hello   Type = "start"   // the first one: URL, Name, TTL, Client
	Acquire Type = "acquire" // get the lock, within Wait; ID names the hold from now on
	Check   Type = "held"    // does the target still hold the lock?
	Release Type = "release"
)

// Messages of a target. Check is answered by a message of the same type.
const (
	Ready    Type = "ready"    // it has connected
	Granted  Type = "granted"  // it holds the lock, with Token if it has tokens
	Denied   Type = "denied"   // it did not get the lock within Wait
	Lost     Type = "lost"     // it has lost the lock; nobody has asked
	Released Type = "released" // the release is done
	Failed   Type = "error"    // the request has failed, and the outcome is unknown
)

// A Message is one line.
type Message struct {
	Type Type  `json:"type"`
	ID   int64 `json:"id,omitempty"` // of the hold

	URL    string `json:"url,omitempty"`    // of the store; for a file, its path
	Name   string `json:"name,omitempty"`   // of the lock
	TTL    int64  `json:"ttl,omitempty"`    // of the lock, in milliseconds
	Client string `json:"client,omitempty"` // what the target may call itself in the store

	Wait int64 `json:"wait,omitempty"` // in milliseconds

	Token uint64 `json:"token,omitempty"`
	Held  bool   `json:"held,omitempty"`
	Error string `json:"error,omitempty"`
}

// A phase is what the last message about a hold was.
type phase int

const (
	unknown phase = iota
	asked         // by Acquire
	holding
	checking // by Check
	releasing
	over
)

// follow returns the phase of a hold after a message from the target, or an error if the
// protocol does not allow the message.
func (now phase) follow(m Message) (phase, error) {
	held := now == holding || now == checking
	switch {
	case m.Type == Granted && now == asked, (m.Type == Check || m.Type == Failed) && now == checking:
		return holding, nil
	case m.Type == Denied && now == asked, m.Type == Released && now == releasing,
		m.Type == Failed && (now == asked || now == releasing):
		return over, nil
	case m.Type == Lost && (held || now == releasing || now == over), // it may cross a release
		m.Type == Check && now == releasing: // the judge has not waited for it
		return now, nil
	}
	return now, fmt.Errorf("%q is no answer for hold %d: %s", m.Type, m.ID, answers[now])
}

// answers says in each phase what the target may send.
var answers = map[phase]string{
	unknown:   `the judge has not sent "acquire" with this id`,
	asked:     `answer "acquire" with "granted", "denied" or "error"`,
	holding:   `the judge has asked nothing; only "lost" is sent unasked`,
	checking:  `answer "held" with "held" or "error"`,
	releasing: `answer "release" with "released" or "error"`,
	over:      "the hold is over already",
}
