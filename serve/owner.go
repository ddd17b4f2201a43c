package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/sniblock/snib/driver"
)

// An ownerID is the owner of a hold in the store. Two replicas may act for one client at the same
// time, because it sends a request again whose answer it did not get. If both used the owner of
// the client, a replica that gave up would end what the other one got. So each acquisition of each
// replica has an owner of its own in the store, which begins with that of the client.
type ownerID struct {
	client  string // as the client calls itself
	attempt string // of the acquisition, as the client calls it
	nonce   string // of the acquisition at this replica; "": the hold was not taken by a service
}

const (
	nonceLength = 10
	checkLength = 8
)

func newOwnerID(client, attempt string) ownerID {
	return ownerID{client, attempt, rand.Text()[:nonceLength]}
}

// String returns the owner in the store.
func (o ownerID) String() string {
	if o.nonce == "" {
		return o.client
	}
	return o.client + "~" + o.check() + "." + o.attempt + "." + o.nonce
}

// check returns a digest that tells the owners of services from others that look like them.
func (o ownerID) check() string {
	sum := sha256.Sum256([]byte(o.client + "\x00" + o.attempt + "\x00" + o.nonce))
	return hex.EncodeToString(sum[:])[:checkLength]
}

// parseOwner is the inverse of String. An owner that no service has made is that of a client.
func parseOwner(text string) ownerID {
	if i := strings.LastIndexByte(text, '~'); i >= 0 {
		parts := strings.Split(text[i+1:], ".")
		if len(parts) == 3 && len(parts[2]) == nonceLength {
			o := ownerID{text[:i], parts[1], parts[2]}
			if o.check() == parts[0] {
				return o
			}
		}
	}
	return ownerID{client: text}
}

// ClientOwner returns the owner as a client calls itself, of an owner in the store.
func ClientOwner(inStore string) string { return parseOwner(inStore).client }

// names reports whether a client means the hold of an owner in the store, if it calls it o: with
// the owner that it gave itself, or with the one that the answer to its acquisition has.
func (o ownerID) names(inStore string) bool {
	if o.nonce != "" {
		return inStore == o.String()
	}
	return parseOwner(inStore).client == o.client
}

// isOf reports whether a replica has made the owner for an acquisition.
func (o ownerID) isOf(key placeKey) bool {
	return o.nonce != "" && o.client == key.client && o.attempt == key.attempt
}

// waitingLabel begins the label of a request that waits in the store, and of a hold that the store
// has granted to it, until the replica takes the hold for good. Only until then may the replica
// give it up. So no other replica takes over a hold with this label: it could end at once.
const waitingLabel = "snib:waits"

// withWaitingLabel returns h with a label that begins with waitingLabel.
func withWaitingLabel(h driver.Holder) driver.Holder {
	h.Label = strings.TrimSuffix(waitingLabel+" "+h.Label, " ")
	return h
}

// withoutWaitingLabel returns h as it was before withWaitingLabel, and whether it had the label.
func withoutWaitingLabel(h driver.Holder) (driver.Holder, bool) {
	rest, ok := strings.CutPrefix(h.Label, waitingLabel)
	if !ok || rest != "" && rest[0] != ' ' {
		return h, false
	}
	h.Label = strings.TrimPrefix(rest, " ")
	return h, true
}
