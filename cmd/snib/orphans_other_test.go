//go:build unix && !linux

package main

// subreaper can only be done on Linux, as can its test.
func subreaper() { die("subreaper: this system has none") }
