// Package history has the log format of the nemesis tests, and the checker that judges what happened by logs alone.
//
// Worker processes and the test that breaks things each write one JSON object per line to a file of their own. All stamps
// are readings of CLOCK_BOOTTIME, which all processes of a machine share. [Check] reads the events of all files. It knows
// no store and no client, so a mistake in those can't hide itself here.
package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// A Kind says what an [Event] tells.
type Kind string

// Events of a worker. ID joins those of one hold.
const (
	Start    Kind = "start"    // the process lives
	Call     Kind = "call"     // Acquire is about to be called
	Acquired Kind = "acquired" // Acquire has returned a hold; Valid was read after that
	Failed   Kind = "failed"   // Acquire has returned an error
	Valid    Kind = "valid"    // At was read, and then Validity
	Told     Kind = "told"     // the holder has seen that the hold is lost
	Release  Kind = "release"  // Release is about to be called
	Released Kind = "released" // Release has returned
	Late     Kind = "late"     // the process did not run on time from At to Until
	Bye      Kind = "bye"      // the process has ended by itself
)

// Events of the test that breaks things. ID joins begin and end.
const (
	Begin Kind = "begin" // of a fault; Name is the lock that it is about, if it is about one
	End   Kind = "end"   // of a fault; Token is that of the lease that it has ended, if it has ended one
	Heal  Kind = "heal"  // no fault comes after this
	Left  Kind = "left"  // the store still shows a holder or a waiter after all workers have ended
)

// The faults that [Check] must know, because they change what a worker believes. Worker is the process that suffers them.
const (
	KillWorker = "kill-worker" // SIGKILL
	StopWorker = "stop-worker" // SIGSTOP until the end of the fault
)

// An Event is a line of a log.
type Event struct {
	At     int64  `json:"at"` // ns of CLOCK_BOOTTIME
	Kind   Kind   `json:"kind"`
	Worker string `json:"worker,omitempty"` // a process, unique in a run
	ID     int64  `json:"id,omitempty"`     // of the hold in its worker, or of the fault

	Name    string        `json:"name,omitempty"`    // of the lock
	Shared  bool          `json:"shared,omitempty"`  // it is the read side
	Slots   int           `json:"slots,omitempty"`   // the size of the semaphore
	MinHold time.Duration `json:"minhold,omitempty"` // as the option
	Delay   time.Duration `json:"delay,omitempty"`   // LockDelay
	Tick    int64         `json:"tick,omitempty"`    // of a schedule: it must be run once
	Any     bool          `json:"any,omitempty"`     // it does not matter which worker makes progress on this name

	Token uint64        `json:"token,omitempty"`
	Valid time.Duration `json:"valid,omitempty"`
	Until int64         `json:"until,omitempty"`
	Fault string        `json:"fault,omitempty"`
	Err   string        `json:"err,omitempty"`
	Lost  bool          `json:"lost,omitempty"` // Err matches ErrLost
	Odd   bool          `json:"odd,omitempty"`  // Err is none of those that a caller has to expect
}

// A Log appends events to a file, each with one write, so that a killed process leaves whole lines. It is safe for
// concurrent use.
type Log struct {
	worker string
	mu     sync.Mutex
	file   *os.File
}

// Create makes a log; worker stands in each of its events that name none.
func Create(path, worker string) (*Log, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Log{worker: worker, file: file}, nil
}

// Add writes an event. What can't be written can't be judged, so it panics then.
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

// Read returns the events of the files, in the order of time. A last line without its end is left out: its process was
// killed.
func Read(paths ...string) ([]Event, error) {
	var all []Event
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
			var e Event
			if err := json.Unmarshal(s.Bytes(), &e); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
