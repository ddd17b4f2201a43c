// Package mutant proves that the tests can fail. It lists changes to the code. Each change breaks
// one guarantee of docs/guarantees.md, and names the tests that must notice. "make mutants"
// compiles each mutant without touching the tree. It fails if the tests still pass, or if the
// mutant does not compile.
//
// A mutant says what it changes by package, declaration and text, so it survives when code moves
// to another file, or is indented anew. Without the build tag mutants, the tests here only check
// that each mutant still finds its text, and that its tests are named on the page. A mutant stays
// if users would be harmed and no other test would notice; none of the tests starts a server.
//
// The broken drivers for the clauses of the conformance suite are in driver/drivertest.
package mutant
