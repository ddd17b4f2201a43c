package serve

import (
	"crypto/rand"
	"strings"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// A grantID is the id of an attempt in the store, and of the hold that it leads to. Two replicas
// may work on one acquisition at the same time, because its client sends a request again whose
// answer it did not get. If both used the id of the client, a replica that gives up would end what
// the other one has handed out. So each request to the store has an id of its own, which begins
// with that of the client.
type grantID struct {
	client string // the id that the client has made up
	nonce  string // of the request to the store; "": the client knows nothing of it, or no service has made the id
}

const (
	nonceLength = 10
	nonceMark   = "." // before the nonce; no id of a client has it
)

func newGrantID(client string) grantID { return grantID{client, rand.Text()[:nonceLength]} }

// String returns the id in the store.
func (g grantID) String() string {
	if g.nonce == "" {
		return g.client
	}
	return g.client + nonceMark + g.nonce
}

// parseID is the inverse of String.
func parseID(text string) grantID {
	if i := len(text) - nonceLength - len(nonceMark); i > 0 && text[i:i+len(nonceMark)] == nonceMark {
		return grantID{text[:i], text[i+len(nonceMark):]}
	}
	return grantID{client: text}
}

// names reports whether a client means the hold with an id in the store, if it calls it g: with the
// id of its request, or with that of the answer.
func (g grantID) names(inStore string) bool {
	if g.nonce != "" {
		return inStore == g.String()
	}
	return parseID(inStore).client == g.client
}

// isFinal reports whether g names a hold that no replica may give up.
func (g grantID) isFinal(h driver.Holding) bool {
	return g.names(h.ID) && h.Foreign == "" && h.Holder.Kind != driver.KindPending && h.Holder.Kind != driver.KindKept
}

// checkID returns the id of a request. It does not repeat it: an id is a secret.
func checkID(text string) (grantID, error) {
	id := parseID(text)
	switch {
	case text == "":
		return id, invalidf("id: it is missing")
	case len(id.client) < wire.MinID || len(id.client) > wire.MaxID || strings.ContainsFunc(id.client+id.nonce, isNotOfID):
		return id, invalidf("id: it must have %d to %d characters of A-Z, a-z, 0-9, _ and -, and nobody may be able to guess it; "+
			"make a new one for each acquisition, or leave it out and use the one of the answer", wire.MinID, wire.MaxID)
	}
	return id, nil
}

func isNotOfID(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '-')
}
