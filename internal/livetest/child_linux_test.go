package livetest

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A chore is what the children of these tests do.
type chore struct {
	Say  []string
	Fail string
	Stay bool // until told to end
}

func (c chore) do(ctx context.Context) error {
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

// A child says what it has to, stays until it is told to end, and is waited for.
func TestChild(t *testing.T) {
	c := StartChild(t, chore{Say: []string{"one", "two words"}, Stay: true})
	pid := int(c.Number("pid"))
	c.Expect("one")
	if got := c.Expect("two"); got != "words" {
		t.Errorf("what follows %q is %q, want %q", "two", got, "words")
	}
	if gone(pid) == nil {
		t.Error("the child has ended before it was told to")
	}
	c.End()
	c.Expect("ended")
	c.Wait()
	if err := gone(pid); err != nil {
		t.Errorf("after Wait: %v", err)
	}
	c.Wait() // again is harmless, and so is Kill
	c.Kill()
}

// A child ends with its test, also one that is stopped.
func TestChildEndsWithTest(t *testing.T) {
	for _, stop := range []bool{false, true} {
		pid := 0
		r := record(t, func(t testing.TB) {
			c := StartChild(t, chore{Stay: true})
			pid = int(c.Number("pid"))
			if stop {
				c.Signal(syscall.SIGSTOP)
			}
		})
		if r.failed != "" || pid == 0 || gone(pid) == nil {
			t.Fatalf("stopped %v: the test failed with %q, or its child %d is gone too soon", stop, r.failed, pid)
		}
		r.cleanup()
		if err := gone(pid); err != nil {
			t.Errorf("stopped %v: after its test: %v", stop, err)
		}
	}
}

// What goes wrong in a child fails the test.
func TestChildFails(t *testing.T) {
	tests := []struct {
		name string
		job  any
		run  func(*Child)
		want string
	}{
		{"Error", chore{Fail: "no luck"}, func(c *Child) { c.Expect("pid"); c.Wait() }, `"error no luck"`},
		{"OtherWord", chore{Say: []string{"word"}}, func(c *Child) { c.Expect("pid"); c.Expect("wor") }, `says "word", want "wor"`},
		{"NoWord", chore{}, func(c *Child) { c.Expect("pid"); c.Expect("more") }, `ended, want it to say "more"`},
		{"NoNumber", chore{Say: []string{"count -1"}}, func(c *Child) { c.Expect("pid"); c.Number("count") }, "want a number"},
		{"NoChore", "text", func(c *Child) { c.Wait() }, "error json: "},
		{"NoJob", func() {}, func(*Child) {}, "unsupported type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := record(t, func(t testing.TB) { tt.run(StartChild(t, tt.job)) })
			defer r.cleanup()
			if !strings.Contains(r.failed, tt.want) {
				t.Errorf("the test failed with %q, want it to say %q", r.failed, tt.want)
			}
		})
	}
}
