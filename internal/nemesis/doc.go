// Package nemesis runs processes that lock in real stores, and breaks the processes, the stores and the network between them. It has
// nothing but tests; docs/nemesis.md is about them. Package history judges what happened.
package nemesis
