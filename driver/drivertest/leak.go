package drivertest

import (
	"runtime"
	"strings"
	"time"
)

// leakClause is the clause after which goroutines are counted, when everything else is cleaned
// up.
const leakClause = "Close/LeavesNoGoroutine"

// goroutines returns the stacks of all goroutines by their ids; in a bubble, of those in the
// same bubble.
func goroutines() map[string]string {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := make(map[string]string)
	stacks := strings.Split(string(buf), "\n\n")
	where := bubbleOf(stacks[0]) // the first one is our own
	for _, stack := range stacks {
		if id, _, ok := strings.Cut(stack, " ["); ok && bubbleOf(stack) == where {
			all[id] = stack
		}
	}
	return all
}

// bubbleOf returns the synctest bubble in which a goroutine runs, "" for none.
func bubbleOf(stack string) string {
	head, _, _ := strings.Cut(stack, "\n")
	_, name, _ := strings.Cut(head, "synctest bubble ")
	return name
}

// checkLeaks fails the case if goroutines run that did not run before it.
func (t *trial) checkLeaks(before map[string]string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(waitTimeout); ; {
		left = left[:0]
		for id, stack := range goroutines() {
			if _, old := before[id]; !old && !isTestGoroutine(stack) {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		t.sleep(10 * time.Millisecond) // nothing tells when a goroutine ends
	}
	t.Errorf("%d goroutines are left after Close:\n\n%s", len(left), strings.Join(left, "\n\n"))
}

// isTestGoroutine reports whether a goroutine belongs to package testing: other tests may run
// meanwhile.
func isTestGoroutine(stack string) bool {
	_, creator, _ := strings.Cut(stack, "created by ")
	return creator == "" || strings.HasPrefix(creator, "testing.") || strings.HasPrefix(creator, "runtime.") ||
		strings.HasPrefix(creator, "internal/synctest.")
}
