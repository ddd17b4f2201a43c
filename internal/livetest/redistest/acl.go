package redistest

import (
	"os"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// UsersOf returns the lines of redis.conf that define the ACL users on a page of documentation, in
// its first block of text that begins with such a line. They have the given password.
func UsersOf(t testing.TB, page, password string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	livetest.Must(t, err, "read the users")
	_, after, _ := strings.Cut(string(text), "```text\nuser ")
	block, _, _ := strings.Cut("user "+after, "```")
	var users []string
	for line := range strings.Lines(block) {
		users = append(users, strings.Replace(strings.TrimSpace(line), ">SECRET", ">"+password, 1))
	}
	return users
}
