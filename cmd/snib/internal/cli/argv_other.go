//go:build !linux

package cli

// hide returns args: here nothing is known of where the system looks.
func hide(args []string) []string { return args }
