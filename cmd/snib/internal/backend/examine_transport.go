package backend

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/remotelock/wire"
)

// A transport is how a URL makes us reach a server and log in there.
type transport struct {
	hosts []string // host:port, or the path of a socket

	tls      bool // false if traffic is not encrypted, or need not be
	insecure bool // the server's certificate is not verified

	login bool // with a password or a client certificate
	// How to make the server require a login; empty if the server is asked whether it does.
	loginAdvice string

	secrets []string // files that contain passwords and keys
}

// addSecrets adds the files that are named. An empty name stands for none.
func (t *transport) addSecrets(files ...string) {
	t.secrets = append(t.secrets, slices.DeleteFunc(files, func(file string) bool { return file == "" })...)
}

// findings says what other people can do to the locks because of the way in
// which we reach the server.
func (t *transport) findings() []Finding {
	var all []Finding
	if t.loginAdvice != "" {
		all = append(all, newFinding("access", t.describeLogin(), t.login || t.isSocket(), Note,
			"anybody with access to the server can free each lock: "+t.loginAdvice))
	}
	all = append(all, t.encryptionFinding())
	for _, file := range t.secrets {
		if f, ok := ExamineSecret(file); ok {
			all = append(all, f)
		}
	}
	return all
}

func (t *transport) describeLogin() string {
	switch {
	case t.login:
		return "we log in"
	case t.isSocket():
		return "through a socket of this host"
	}
	return "the server accepts connections without a password"
}

func (t *transport) encryptionFinding() Finding {
	const between = "everybody on the network path can read the traffic, and free each lock: "
	switch {
	case t.isLocal():
		return Finding{Check: "transport", Verdict: Good, Value: "the traffic does not leave this host"}
	case !t.tls:
		return Finding{Check: "transport", Verdict: Note, Value: "the traffic is not encrypted, or need not be", Advice: between + "use TLS, or a tunnel"}
	case t.insecure:
		return Finding{Check: "transport", Verdict: Note, Value: "TLS, but the server's certificate is not verified",
			Advice: between + "verify it against the authority that signed it"}
	}
	return Finding{Check: "transport", Verdict: Good, Value: "TLS"}
}

// isSocket reports whether the server is reached only by sockets in the file system.
func (t *transport) isSocket() bool {
	return !slices.ContainsFunc(t.hosts, func(host string) bool { return !strings.HasPrefix(host, "/") })
}

// isLocal reports whether all hosts are this host.
func (t *transport) isLocal() bool {
	return !slices.ContainsFunc(t.hosts, func(host string) bool {
		return !strings.HasPrefix(host, "/") && !wire.IsLoopback(host)
	})
}

// ExamineSecret judges who may read a file that contains a secret. It returns
// false if only the owner may.
func ExamineSecret(file string) (Finding, bool) {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return Finding{}, false // another error reports a file that can't be read
	}
	return Finding{Check: "secret", Verdict: Unmet, Value: fmt.Sprintf("%s has mode %#o", file, info.Mode().Perm()),
		Advice: "chmod 600: everybody who can read it can log in, and free each lock"}, true
}

// newTransport returns the transport of a URL.
func (u *serverURL) newTransport(loginAdvice string) *transport {
	t := &transport{
		hosts: u.hosts, tls: u.tls, insecure: u.insecure, loginAdvice: loginAdvice,
		login: u.password != "" || u.passwordFile != "" || u.cert != "",
	}
	t.addSecrets(u.passwordFile, u.sentinelPasswordFile, u.tokenFile, u.key)
	return t
}

// postgresTransport returns the transport of a configuration. With sslmode=prefer, the default,
// and with require, pgx does not verify the server's certificate.
func postgresTransport(u *sqlURL, c *pgx.ConnConfig) *transport {
	t := &transport{
		hosts: []string{c.Host}, tls: c.TLSConfig != nil, login: c.Password != "",
		loginAdvice: "see pg_hba.conf, where trust asks for no password",
	}
	// These are the parameters, variables and defaults of libpq.
	t.addSecrets(
		u.passwordFile,
		cmp.Or(u.parameter("passfile"), os.Getenv("PGPASSFILE"), defaultPassfile()),
		cmp.Or(u.parameter("sslkey"), os.Getenv("PGSSLKEY")),
	)
	if c.TLSConfig != nil {
		t.insecure = c.TLSConfig.InsecureSkipVerify && c.TLSConfig.VerifyPeerCertificate == nil
		t.login = t.login || len(c.TLSConfig.Certificates) > 0 || c.TLSConfig.GetClientCertificate != nil
	}
	for _, other := range c.Fallbacks {
		t.hosts = append(t.hosts, other.Host)
	}
	return t
}

// defaultPassfile returns the password file that pgx reads by default, or "" if the user has no
// home directory.
func defaultPassfile() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".pgpass")
}

func mySQLTransport(u *sqlURL, c *mysql.Config) *transport {
	t := &transport{
		hosts: []string{c.Addr}, tls: c.TLS != nil, login: c.Passwd != "", loginAdvice: "give the account a password",
	}
	switch {
	case c.TLS != nil:
		t.insecure, t.login = c.TLS.InsecureSkipVerify, t.login || len(c.TLS.Certificates) > 0
	case c.TLSConfig != "" && c.TLSConfig != "false" && c.TLSConfig != "preferred":
		t.tls, t.insecure = true, c.TLSConfig == "skip-verify"
	}
	t.addSecrets(u.passwordFile, u.taken["ssl-key"])
	return t
}
