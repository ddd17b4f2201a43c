// Package arch checks the repository's own rules: which packages may import which, what a package
// may be called, that libraries keep no state, and what every backend must provide.
//
// The rules are a table in rules_test.go, with one row for each package. A package without
// a row fails, so a new one can't come in unnoticed. The message of a violation is the
// reason for the rule. What a linter can check is in .golangci.yml.
package arch
