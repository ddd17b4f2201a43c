// Package peers has targets of the lab that lock with libraries of others. [All] is the
// catalog: which library in which version, with which settings, and which faults its documentation
// excludes. The programs are in a folder for each language. Those in Go are part of
// the program that runs the lab. [Peer.Install] installs the other libraries, in pinned versions,
// into the user's cache folder when a target is first run.
package peers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

// A Peer is a lock of somebody else.
type Peer struct {
	Name  string
	Store trial.StoreKind

	Language, Library, Version string

	Settings string // that differ from the defaults of the library
	Held     string // what answers whether the lock is still held
	Tokens   bool   // it gives fencing tokens

	statements []statement
	kit        *kit
}

// A statement is what the documentation of a lock says that it rests on, in our words.
type statement struct {
	text     string
	page     string   // its address
	excludes []string // the faults that it assumes not to happen
}

// Target returns a peer as the lab knows it, without the command that starts it.
func (p Peer) Target() trial.Target {
	c := trial.Target{
		Name: p.Name, Title: p.Library + " " + p.Version + ", in " + p.Language, Store: p.Store, Tokens: p.Tokens,
		Assumes: make(map[string]string),
	}
	for _, s := range p.statements {
		for _, fault := range s.excludes {
			c.Assumes[fault] = cmp.Or(c.Assumes[fault], s.text+" ("+s.page+")")
		}
	}
	return c
}

// Group is the name of all peers. With a hyphen and the name of a store, it is that of the
// peers on this store.
const Group = "foreign"

// Named returns the peers that a name stands for: one, or those of a [Group]. It returns none if
// there is no such name.
func Named(name string) []Peer {
	store, isGroup := strings.CutPrefix(name+"-", Group+"-")
	return slices.DeleteFunc(All(), func(p Peer) bool {
		return p.Name != name && (!isGroup || store != "" && store != string(p.Store)+"-")
	})
}
