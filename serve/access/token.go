package access

import (
	"crypto/rand"
	"crypto/sha256"
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

// tokenIdentity returns the identity of whoever shows a token. How long the search takes tells
// something of a digest, and nothing of a token that has it.
func tokenIdentity(token string) identity {
	sum := digest(sha256.Sum256([]byte(token)))
	return func(p *Policy) (Rights, error) {
		if rights, ok := p.tokens[sum]; ok {
			return rights, nil
		}
		return Rights{}, errUnknownToken
	}
}
