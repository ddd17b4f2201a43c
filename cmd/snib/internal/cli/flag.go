package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
)

// A duration is the value of a flag: "30s" in Go's syntax, or a bare number of seconds,
// as in flock and timeout.
type duration struct {
	value time.Duration
	min   time.Duration // 0 if zero is allowed
	set   bool
}

func (d *duration) String() string {
	if d.value == 0 && !d.set {
		return ""
	}
	return d.value.String()
}

func (d *duration) Type() string { return "DURATION" }

func (d *duration) Set(text string) error {
	v, err := backend.ParseDuration(text)
	switch {
	case err != nil:
		return err
	case v < 0:
		return fmt.Errorf("it is negative; give a duration such as 30s")
	case v == 0 && d.min > 0:
		return fmt.Errorf("it is zero; give a duration such as 30s")
	case v < d.min:
		return fmt.Errorf("it is shorter than %v, the minimum; give a duration such as 30s", d.min)
	}
	d.value, d.set = v, true
	return nil
}

// A choice is the value of a flag that is one of a few words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }

func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.allowed, text) {
		return fmt.Errorf("it is not one of %s", c.Type())
	}
	c.value = text
	return nil
}

// addOutput adds the flag -o with a few allowed values. The first is the default. Shells complete
// them.
func addOutput(cmd *cobra.Command, allowed ...string) *choice {
	c := &choice{value: allowed[0], allowed: allowed}
	cmd.Flags().VarP(c, "output", "o", "the format of the result")
	complete := cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag exists
	}
	return c
}

// waitFlags say how long a command waits for its lock, and for a store that does not answer.
type waitFlags struct {
	wait  *duration // the longest wait, if set
	try   bool
	retry *duration // how long the store may be unavailable
}

func (w *waitFlags) register(cmd *cobra.Command) {
	w.wait = addDuration(cmd, "wait", "w", "wait at most this long for the lock (default: for ever)", 0, 0)
	cmd.Flags().BoolVarP(&w.try, "try", "n", false, "don't wait: if the lock is taken, exit 75")
	w.retry = addDuration(cmd, "retry", "", "try for this long if the store does not answer", driver.RetryTimeout, 0)
}

// check reports flags that contradict one another.
func (w *waitFlags) check() error {
	if w.try && w.wait.set {
		return usagef("--try and --wait exclude each other: give one of them")
	}
	return nil
}

// asksOnce reports whether the command does not wait for the lock.
func (w *waitFlags) asksOnce() bool { return w.try || w.wait.set && w.wait.value == 0 }

// addDuration adds a flag for a duration of at least min.
func addDuration(cmd *cobra.Command, name, short, usage string, value, min time.Duration) *duration {
	d := &duration{value: value, min: min}
	cmd.Flags().VarP(d, name, short, usage)
	return d
}
