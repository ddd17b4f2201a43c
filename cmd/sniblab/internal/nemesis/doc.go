// Package nemesis runs processes that use locks in real stores, and injects faults into the
// processes, the stores and the network between them. It contains only tests; docs/nemesis.md
// describes them. Package history checks the logs.
package nemesis
