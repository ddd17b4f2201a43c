// Package readme keeps the README true. Its shell blocks are run, its Go blocks stand line for line in an example that
// is run, and its links, and those of the other pages, lead somewhere.
package readme
