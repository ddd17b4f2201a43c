// Package mutant proves that the tests can fail. It lists single changes to the code. Each change
// breaks one guarantee, and names the tests that must notice. "make mutants" compiles each mutant
// without touching the tree. It fails if the tests still pass, if the mutant does not compile, or
// if the code that it changes is gone.
//
// The broken drivers for the clauses of the conformance suite are in driver/drivertest.
package mutant
