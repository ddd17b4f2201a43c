// Package readme keeps the README, and other pages for users, true. It runs their shell blocks. It
// checks that each of their Go blocks is part of an example that is run, line for line, and that
// what the examples in other languages show is in their programs. It checks that the links of all
// pages lead somewhere, and that translations say what their originals say now.
package readme
