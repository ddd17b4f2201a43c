package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	v, err := parseDuration(text)
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

func parseDuration(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(n) || math.Abs(n) > math.MaxInt64/float64(time.Second)/2 {
			return 0, fmt.Errorf("it is out of range; give a duration such as 30s")
		}
		return time.Duration(n * float64(time.Second)), nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("it is not a duration; give one such as 30s, 5m or a number of seconds")
	}
	return v, nil
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

// addRetry adds the flag that says how long the store may be unavailable.
func addRetry(cmd *cobra.Command) *duration {
	return addDuration(cmd, "retry", "", "try for this long if the store does not answer", driver.RetryTimeout, 0)
}

// addDuration adds a flag for a duration of at least min.
func addDuration(cmd *cobra.Command, name, short, usage string, value, min time.Duration) *duration {
	d := &duration{value: value, min: min}
	cmd.Flags().VarP(d, name, short, usage)
	return d
}
