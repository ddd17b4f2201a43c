// Command release makes a release of all modules of the repository: a commit beside main whose
// go.mod files require each other at one version, a tag for each module, the command snib for
// each platform, packages, and notes. CONTRIBUTING.md says how to use it.
//
// It works in a clone. The repository gets the tags at the end, all or none, and nothing is
// pushed.
package main
