// Package readme keeps the README true. It runs the README's shell blocks. It checks that each Go
// block is part of an example that is run, line for line. And it checks that the links of the
// README and of the other pages lead somewhere.
package readme
