// Package history contains the log format of the nemesis tests and of the lab, and the checker
// that judges a run by its logs alone.
//
// Each worker process, and the test that injects faults, writes one JSON object per line to
// its own file. All timestamps are readings of CLOCK_BOOTTIME, which all processes of a
// machine share. [Check] judges the events of all files. It knows nothing about stores and
// clients, so a bug in those can't hide here.
package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// A Kind is the kind of an [Event].
type Kind string

// Events of a worker. The events of one hold have the same ID.
const (
	Start    Kind = "start"    // the process has started
	Call     Kind = "call"     // Acquire is about to be called
	Acquired Kind = "acquired" // Acquire has returned a hold; Valid was read after At
	Failed   Kind = "failed"   // Acquire has returned an error
	Valid    Kind = "valid"    // the holder has read At, and then Validity
	Over     Kind = "over"     // the holder has read At, and then a Validity of 0
	Told     Kind = "told"     // the holder has noticed that the hold is lost
	Release  Kind = "release"  // Release is about to be called
	Released Kind = "released" // Release has returned
	Late     Kind = "late"     // the process was not scheduled from At to Until
	Bye      Kind = "bye"      // the process has ended by itself
)

// Events of the test that injects faults. Begin and End of one fault have the same ID.
const (
	Begin Kind = "begin" // of a fault; Name or Worker is the affected lock or process if it affects only one
	End   Kind = "end"   // of a fault; Token is that of the lease that the fault has ended, if any
	Heal  Kind = "heal"  // no fault follows
	Left  Kind = "left"  // the store still shows a holder or a waiter after all workers have ended
)

// The faults that [Check] must know, because they change what a worker believes.
// Worker is the affected process.
const (
	KillWorker = "kill-worker" // SIGKILL
	StopWorker = "stop-worker" // SIGSTOP until the end of the fault
)

// An Event is a line of a log.
type Event struct {
	At     int64  `json:"at"` // ns of CLOCK_BOOTTIME
	Kind   Kind   `json:"kind"`
	Worker string `json:"worker,omitempty"` // the process; its name is unique in a run
	ID     int64  `json:"id,omitempty"`     // of the hold within its worker, or of the fault

	Name    string        `json:"name,omitempty"`    // of the lock
	Shared  bool          `json:"shared,omitempty"`  // on the read side
	Slots   int           `json:"slots,omitempty"`   // the size of the semaphore
	MinHold time.Duration `json:"minhold,omitempty"` // the option MinHold
	Delay   time.Duration `json:"delay,omitempty"`   // the option LockDelay
	Tick    int64         `json:"tick,omitempty"`    // of a schedule: it must be run only once
	// It does not matter which worker gets this lock.
	Any bool `json:"any,omitempty"`

	Token uint64        `json:"token,omitempty"`
	Valid time.Duration `json:"valid,omitempty"`
	Until int64         `json:"until,omitempty"`
	Fault string        `json:"fault,omitempty"`
	Err   string        `json:"err,omitempty"`
	Lost  bool          `json:"lost,omitempty"` // Err matches ErrLost
	Odd   bool          `json:"odd,omitempty"`  // Err is not an error that a caller has to expect
}

// A Log appends events to a file. Each event is one write, so that a killed process leaves
// whole lines. A Log is safe for concurrent use.
type Log struct {
	worker string
	mu     sync.Mutex
	file   *os.File
}

// Create creates a log. Events without a Worker get the given one.
func Create(path, worker string) (*Log, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Log{worker: worker, file: file}, nil
}

// Add writes an event. It panics on an error, because an event that is not logged
// can't be judged.
func (l *Log) Add(e Event) {
	e.Worker = cmp.Or(e.Worker, l.worker)
	line, err := json.Marshal(e)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("history: %v", err))
	}
}

// Read returns the events of the files, ordered by time. It ignores an incomplete
// last line, whose process was killed.
func Read(paths ...string) ([]Event, error) {
	var all []Event
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			var e Event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
