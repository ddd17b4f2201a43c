// Package arch holds the repository's own rules as a test: who may import whom, what a package may be called, that
// libraries keep no state, and what every backend brings with it.
//
// The rules stand in rules_test.go as a table, one row for each package; a package without a row fails, so a new one
// cannot come in unnoticed. A violation's message is the reason for the rule. Every check has fixtures that break it,
// in mutants_test.go: a check that can't fail proves nothing.
package arch
