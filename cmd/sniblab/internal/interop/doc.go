// Package interop tests snib together with other lock libraries in the same store: the real
// clients, in Go, Java, Node.js and Python. It contains only tests.
//
// The Redis libraries share one convention: a key with the name of the lock, created
// with SET key value NX PX, whose value only its holder knows. Each of them and snib
// exclude one another. Only snib announces a release, so a waiter of snib polls five
// times a second while another library holds the lock. The order between other libraries
// and snib's waiters is a matter of chance.
//
// The tests of Node.js and Python run the programs of examples/node and examples/python, too, with
// the packages of package peers. They are skipped if node, npm, python3, its pip or the packages
// are missing, and fail instead if the environment variable SNIB_REQUIRE names node or python.
package interop
