//go:build unix

package main

import (
	"bytes"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

// runOnce runs a command to its end, and returns what it printed and its exit code.
func runOnce(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestServeAccess checks the command with a policy, as an operator and clients use it: a token
// is made, clients show it over TLS, the policy is reloaded, and the token is shown nowhere.
func TestServeAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := livetest.NewAuthority(t)
	authority.Write(t, dir, authority.Issue(t, x509.Certificate{}))
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	token, entry, code := runOnce(t, "snib", "serve", "token", "ci")
	if code != 0 || !strings.Contains(entry, "[token.ci]\nsha256 = ") || strings.Contains(entry, strings.TrimSpace(token)) {
		t.Fatalf("serve token: exit %d, %q on standard error", code, entry)
	}
	_, entry, _ = strings.Cut(entry, "\n\n")
	policy := entry + "verbs = [\"read\", \"acquire\"]\nprefixes = [\"deploy\"]\n"
	locker, lockerEntry, _ := runOnce(t, "snib", "serve", "token", "locker")
	_, lockerEntry, _ = strings.Cut(lockerEntry, "\n\n")
	policy += lockerEntry + "verbs = [\"acquire\"]\nprefixes = [\"deploy\"]\n"
	write("policy.toml", policy)
	write("token", token)
	write("locker", locker)

	log := file("log")
	server := start(t, "sh", "-c", `exec snib serve "$@" 2>>"$0"`, log, "sqlite:"+file("locks.db"), "--listen", "127.0.0.1:0",
		"--policy", file("policy.toml"), "--audit-log", file("audit.jsonl"),
		"--tls-cert", file(livetest.CertFile), "--tls-key", file(livetest.KeyFile), "--client-ca", file(livetest.AuthorityFile))
	awaitText(t, log, "serving https://")
	address := regexp.MustCompile(`https://[0-9.:]+`).FindString(read(log))
	service := address + "?ca=" + url.QueryEscape(file(livetest.AuthorityFile))
	withToken := service + "&token-file=" + url.QueryEscape(file("token"))

	var said strings.Builder
	snib := func(want int, args ...string) string {
		t.Helper()
		stdout, stderr, code := runOnce(t, append([]string{"snib"}, args...)...)
		said.WriteString(stdout + stderr)
		if code != want {
			t.Errorf("snib %q: exit %d, want %d: %s", args, code, want, stderr)
		}
		return stdout + stderr
	}
	snib(0, "run", "-u", withToken, "deploy", "--", "true")
	snib(0, "ls", "-u", withToken)
	snib(77, "ls", "-u", service)                           // no token
	snib(77, "run", "-u", withToken, "other", "--", "true") // another prefix
	// Ids are hidden here. A nested run is refused all the same, and unlock finds the keeper.
	snib(64, "run", "-u", withToken, "deploy", "--", "snib", "run", "--try", "-u", withToken, "deploy", "--", "true")
	_, keeper, code := runOnce(t, "sh", "-c", `eval "$(snib hold -v -u "$0" deploy --pid $$)"; snib unlock -u "$0" deploy`, withToken)
	if code != 0 || !strings.Contains(keeper, "snib: released deploy\n") {
		t.Errorf("unlock: exit %d, %q; want 0, and that the keeper released the lock", code, keeper)
	}
	// The verb acquire is enough to take a lock and to free it, and not to look at it.
	asLocker := service + "&token-file=" + url.QueryEscape(file("locker"))
	snib(77, "show", "-u", asLocker, "deploy/own")
	const script = `eval "$(snib lock -u "$0" --ttl 10m deploy/own)"; snib unlock -u "$0" deploy/own; snib unlock -u "$0" deploy/own; echo $?`
	if out, errs, _ := runOnce(t, "sh", "-c", script, asLocker); out != "79\n" || strings.Count(errs, "\n") != 1 {
		t.Errorf("unlock with the verb acquire: the second one exits %q, %q; want 79, because the first has freed the lock", out, errs)
	}
	snib(0, "lock", "-u", withToken, "--ttl", "10m", "deploy/held")
	if got := snib(1, "release", "-u", withToken, "deploy/held", "--id", strings.Repeat("a", 20), "--yes"); !strings.Contains(got, "verb admin") {
		t.Errorf("release says %q, want that ids are hidden", got)
	}
	snib(77, "release", "-u", withToken, "deploy/held", "--force", "--yes", "--reason", "test") // it has not the verb break
	setenv(t, "SNIB_API_TOKEN", strings.TrimSpace(token))
	snib(0, "ls", "-u", service)
	snib(78, "ls", "-u", "http://locks.example.com") // the token would travel in clear text

	hangUp := func(want string) {
		t.Helper()
		write("log", "") // the server appends to it
		if err := server.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		awaitText(t, log, want)
		said.WriteString(read(log))
	}
	write("policy.toml", policy+"verb = 1\n")
	hangUp("what was loaded before stays")
	if !strings.Contains(said.String(), "policy.toml: token.locker.verb: there is no such setting") {
		t.Errorf("the log does not say what is wrong with the policy: %s", read(log))
	}
	snib(0, "ls", "-u", service)
	write("policy.toml", strings.Replace(policy, "sha256 = \"", "sha256 = \""+strings.Repeat("f", 64)+"\"\n#", 1))
	hangUp("reload: done")
	snib(77, "ls", "-u", service)

	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := server.wait(); code != 0 {
		t.Errorf("after TERM the exit code is %d: %s", code, read(log))
	}
	said.WriteString(read(log) + read(file("audit.jsonl")))
	if strings.Contains(said.String(), strings.TrimSpace(token)) {
		t.Error("a message, the log or the audit log shows the token")
	}
	if !strings.Contains(read(file("audit.jsonl")), `"who":"token.ci"`) {
		t.Errorf("the audit log has no refusal: %s", read(file("audit.jsonl")))
	}
}
