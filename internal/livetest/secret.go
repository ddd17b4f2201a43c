package livetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"os"
)

// SecretFile is the name of the file with the [Secret] for programs that set up servers.
const SecretFile = "secret"

// Secret returns the password of servers whose administrators may run programs. It is made once,
// and kept in a file that only this user can read, so that all processes of tests know it. Other
// users of this host reach the servers, too.
func Secret() string {
	path, err := Kept(context.Background(), "server-secret", func(unfinished string) error {
		return os.WriteFile(unfinished, []byte(rand.Text()), 0o600)
	})
	text, failed := os.ReadFile(path)
	if err := cmp.Or(err, failed); err != nil {
		panic(err) // no server can be used without it
	}
	return string(text)
}
