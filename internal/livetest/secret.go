package livetest

import (
	"context"
	"crypto/rand"
	"os"
)

// SecretFile is the name of the file with the [Secret] for programs that set up servers.
const SecretFile = "secret"

// Secret returns the password of servers whose administrators may run programs. It is made once,
// and kept in a file that only this user can read, so that all processes of tests know it. Other
// users of this host reach the servers, too.
func Secret() (string, error) {
	path, err := Kept(context.Background(), "server-secret", func(unfinished string) error {
		return os.WriteFile(unfinished, []byte(rand.Text()), 0o600)
	})
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// MustSecret is [Secret] for those that can't go on without it.
func MustSecret() string {
	secret, err := Secret()
	if err != nil {
		panic(err)
	}
	return secret
}
