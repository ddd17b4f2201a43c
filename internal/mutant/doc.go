// Package mutant holds the proof that the tests can fail: a list of single changes to the code, each of which breaks one
// guarantee, with the tests that must notice. "make mutants" compiles every one of them, without touching the tree, and
// fails if its tests still pass, if it does not compile, or if the code that it changes is gone.
//
// Broken drivers, for the clauses of the conformance suite, stand beside the suite in driver/drivertest.
package mutant
