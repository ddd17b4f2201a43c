// Package demo runs the failure stories of distributed locks, with real processes on real
// servers. Each [Demo] has two variants: first a broken way to lock, with its damage counted, then
// the right one. "sniblab demo" shows them.
//
// # How it works
//
// The program that calls [Run] directs. It starts servers by internal/livetest, and for each client
// a process of its own program (see [Main]), which connects by a pattern of package pattern. The
// clients do what the director tells them, one operation after the other, and report each command
// that they send. So a demo doesn't depend on the speed of the machine: it never sleeps and hopes,
// but waits for what it needs.
//
//   - [Before] stops a client in the middle of an operation, before it sends a given command. That
//     is where demos put a delay, a kill -9 ([Client.Kill]) or a SIGSTOP ([Client.Pause]).
//   - The director acknowledges each command before the client goes on. So the lines of the
//     timeline are in the order in which things happened, and the server's lane shows what the
//     state is after each command.
//   - Methods of [Director] and [Client] return no errors. A failure ends the variant, and Run
//     returns it.
//
// # How to add a demo
//
//  1. Write the broken and the right pattern in package pattern, if they are missing: a Name, a
//     function that returns a pattern.Client, and a row in pattern.Open.
//  2. Write the demo in a file of its own, named after it, and add it to [All]. Often one
//     function, called with either pattern, runs both variants, as in del.go.
//  3. State the damage that each variant must do. The variant fails if it does another one, and
//     TestDemos runs each demo.
//  4. If a lease that must not end in the story ends because the machine is slow, the variant calls
//     s.tooBusy. That is done for clients of snib that lose a lock without [Client.Pause].
//
// A lock on other stores, or on several servers, is a control of package trial: a demo of it would
// need a director for faults of its own.
//
// A demo takes 20 s at most, on an idle machine. Its texts are for people who see the story for
// the first time: say who does what, and what it means.
package demo
