package livetest

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A testJob is the job of the children of these tests.
type testJob struct {
	Say  []string
	Fail string
	Stay bool // until told to end
}

func (c testJob) do(ctx context.Context) error {
	Say("pid", os.Getpid())
	for _, word := range c.Say {
		Say(word)
	}
	if _, again := os.LookupEnv(jobVar); again {
		return errors.New("the job stands in the environment still")
	}
	if c.Stay {
		<-ctx.Done()
		Say("ended")
	}
	if c.Fail != "" {
		return errors.New(c.Fail)
	}
	return nil
}

// TestChild checks that a child sends its lines, runs until it is told to end, and
// can be waited for.
func TestChild(t *testing.T) {
	c := StartChild(t, testJob{Say: []string{"one", "two words"}, Stay: true})
	pid := int(c.Number("pid"))
	c.Expect("one")
	if got := c.Expect("two"); got != "words" {
		t.Errorf("what follows %q is %q, want %q", "two", got, "words")
	}
	if checkGone(pid) == nil {
		t.Error("the child has ended before it was told to")
	}
	c.End()
	c.Expect("ended")
	c.Wait()
	if err := checkGone(pid); err != nil {
		t.Errorf("after Wait: %v", err)
	}
	c.Wait() // again is harmless, and so is Kill
	c.Kill()
}

// TestChildEndsWithTest checks that a child ends with its test, even if it is stopped.
func TestChildEndsWithTest(t *testing.T) {
	for _, stop := range []bool{false, true} {
		pid := 0
		r := runRecorded(t, func(t testing.TB) {
			c := StartChild(t, testJob{Stay: true})
			pid = int(c.Number("pid"))
			if stop {
				c.Signal(syscall.SIGSTOP)
			}
		})
		if r.failed != "" || pid == 0 || checkGone(pid) == nil {
			t.Fatalf("stopped %v: the test failed with %q, or its child %d is gone too soon", stop, r.failed, pid)
		}
		r.cleanup()
		if err := checkGone(pid); err != nil {
			t.Errorf("stopped %v: after its test: %v", stop, err)
		}
	}
}

// TestChildFails checks that an error in a child fails the test.
func TestChildFails(t *testing.T) {
	tests := []struct {
		name string
		job  any
		run  func(*Child)
		want string
	}{
		{"Error", testJob{Fail: "no luck"}, func(c *Child) { c.Expect("pid"); c.Wait() }, `"error no luck"`},
		{"OtherWord", testJob{Say: []string{"word"}}, func(c *Child) { c.Expect("pid"); c.Expect("wor") },
			`says "word", want "wor"`},
		{"NoWord", testJob{}, func(c *Child) { c.Expect("pid"); c.Expect("more") }, `ended, want it to say "more"`},
		{"NoNumber", testJob{Say: []string{"count -1"}}, func(c *Child) { c.Expect("pid"); c.Number("count") },
			"want a number"},
		{"NoChore", "text", func(c *Child) { c.Wait() }, "error json: "},
		{"NoJob", func() {}, func(*Child) {}, "unsupported type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := runRecorded(t, func(t testing.TB) { tt.run(StartChild(t, tt.job)) })
			defer r.cleanup()
			if !strings.Contains(r.failed, tt.want) {
				t.Errorf("the test failed with %q, want it to say %q", r.failed, tt.want)
			}
		})
	}
}
