package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	// tokenPrefix is what all tokens begin with, so that people and scanners know a leaked one.
	tokenPrefix = "snib_"

	// tokenLength is that of a token with 130 random bits, as [rand.Text] writes them.
	tokenLength = len(tokenPrefix) + 26

	digestSize = sha256.Size
)

// NewToken returns a new token, and its line for a policy file. Nobody can derive the token from
// that line.
//
// A digest that is made to be slow, such as bcrypt, is for passwords, which can be guessed. A
// token has 130 random bits, so no number of guesses finds it, and each request would pay for
// the slow digest.
func NewToken() (token, line string) {
	token = tokenPrefix + rand.Text()
	digest := sha256.Sum256([]byte(token))
	return token, fmt.Sprintf("sha256 = %q", hex.EncodeToString(digest[:]))
}

// isToken reports whether a credential looks as [NewToken] makes tokens. No others are
// admitted, so a policy can't contain a password that somebody thought of.
func isToken(credential string) bool {
	return len(credential) == tokenLength && strings.HasPrefix(credential, tokenPrefix)
}

// findToken returns the entry of a token, or nil. Its time does not depend on which entry
// matches, or on how much of one.
func (p *Policy) findToken(digest [digestSize]byte) *tokenEntry {
	var found *tokenEntry
	for i := range p.tokens {
		if subtle.ConstantTimeCompare(digest[:], p.tokens[i].digest[:]) == 1 {
			found = &p.tokens[i]
		}
	}
	return found
}

// tokenIdentity returns the identity of whoever shows a token.
func tokenIdentity(token string) identity {
	digest := sha256.Sum256([]byte(token))
	return func(p *Policy) (Rights, error) {
		if entry := p.findToken(digest); entry != nil {
			return entry.rights, nil
		}
		return Rights{}, errUnknownToken
	}
}
