package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/zklock"
)

// A urlKind is one of the schemes whose URLs this package parses itself. They all have the same
// form.
type urlKind struct {
	scheme    string
	syntax    string // the form of its URLs
	doc       string // one line for the help
	family    family
	port      string // the default port of its servers
	tls       bool
	manyHosts bool   // several hosts are allowed
	hasMaster bool   // the path begins with the master's name
	hasDB     bool   // the path may contain the number of a database
	socket    bool   // there is no host, and the path is that of a Unix socket
	unserved  string // why no lock service can serve its locks

	open func(*serverURL, context.Context) (driver.Driver, error)
}

const redisPort = "6379"

// serverKinds returns the kinds of servers, without their variants with TLS, in the order in which
// the help shows them.
func serverKinds() []urlKind {
	return []urlKind{
		{
			scheme: "redis", syntax: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]", doc: "one Redis server; rediss:// is with TLS",
			family: redisFamily, port: redisPort, hasDB: true, open: (*serverURL).openRedis,
		},
		{
			scheme: redisSocket, syntax: "redis+unix://[USER:PASSWORD@]/PATH[?db=NUMBER]", doc: "the same through a Unix socket",
			family: redisFamily, socket: true, open: (*serverURL).openRedis,
		},
		{
			scheme: "redis+sentinel", syntax: "redis+sentinel://[USER:PASSWORD@]HOST[:PORT],.../MASTER[/DB]",
			doc:    "the Redis that these Sentinels call MASTER; rediss+sentinel:// is with TLS",
			family: redisFamily, port: "26379", manyHosts: true, hasMaster: true, hasDB: true, open: (*serverURL).openRedis,
		},
		{
			scheme: "redis+cluster", syntax: "redis+cluster://[USER:PASSWORD@]HOST[:PORT],...",
			doc:    "a Redis Cluster, known by some of its nodes; rediss+cluster:// is with TLS",
			family: redisFamily, port: redisPort, manyHosts: true, open: (*serverURL).openRedis,
		},
		{
			scheme: "redlock", syntax: "redlock://[USER:PASSWORD@]HOST[:PORT],...",
			doc:    "a majority of independent Redis servers; redlocks:// is with TLS",
			family: redlockFamily, port: redisPort, manyHosts: true, open: (*serverURL).openNodes,
		},
		{
			scheme: "zk", syntax: "zk://[USER:PASSWORD@]HOST[:PORT],...[/ROOT]", doc: "a ZooKeeper ensemble; zks:// is with TLS",
			family: zkFamily, port: "2181", manyHosts: true, open: (*serverURL).openZooKeeper, unserved: mortalLocks,
		},
		{
			scheme: "etcd", syntax: "etcd://[USER:PASSWORD@]HOST[:PORT],...", doc: "an etcd cluster; etcds:// is with TLS",
			family: etcdFamily, port: "2379", manyHosts: true, open: (*serverURL).openEtcd, unserved: mortalLocks,
		},
		{
			scheme: "http", syntax: "http://HOST[:PORT],...",
			doc:    "a lock service, snib serve, at the addresses of its replicas; https:// is with TLS",
			family: serviceFamily, port: ServicePort, manyHosts: true, open: (*serverURL).openService,
			unserved: "it is a lock service already; give the store that it serves",
		},
	}
}

// mortalLocks is why a store is [urlKind.unserved].
const mortalLocks = "its locks end with the session of the process that took them, so a lock service could not keep them for its clients"

// kindOf returns the kind of servers with a scheme.
func kindOf(scheme string) (urlKind, bool) {
	for _, k := range serverKinds() {
		for _, k := range []urlKind{k, k.secure()} {
			if k.scheme == scheme {
				return k, true
			}
		}
	}
	return urlKind{}, false
}

// redisSocket is the scheme of a Redis behind a Unix socket.
const redisSocket = "redis+unix"

// secure returns the same kind with TLS.
func (k urlKind) secure() urlKind {
	k.tls, k.scheme, k.syntax = true, withTLS(k.scheme), withTLS(k.syntax)
	if k.family == zkFamily {
		k.port = "2281"
	}
	return k
}

// withTLS returns a scheme, or the form of a URL, with an s behind the first word.
func withTLS(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r < 'a' || r > 'z' })
	if end < 0 {
		end = len(text)
	}
	return text[:end] + "s" + text[end:]
}

// A serverURL is a parsed URL of Redis, Redlock, ZooKeeper, etcd or a lock service.
type serverURL struct {
	urlKind

	hosts      []string // host:port, in order, each once; or the path of a socket
	user       string
	password   string
	masterName string // with Sentinel
	database   int    // its number, in Redis
	root       string // of the locks in ZooKeeper; "" for the default

	dialTimeout                    time.Duration
	passwordFile, tokenFile        string
	ca, cert, key, serverName      string
	insecure                       bool
	sentinelUser, sentinelPassword string
	sentinelPasswordFile           string

	graceOff bool // see location

	// These options are what the parameters ask of the driver.
	redis   []redislock.Option
	redlock []redlock.Option
	zk      []zklock.Option
	etcd    []etcdlock.Option
}

// resolve is the resolve function of the [Scheme].
func (k urlKind) resolve(rest string) (location, error) {
	u, err := k.parse(rest)
	if err != nil {
		return location{}, err
	}
	open := func(ctx context.Context) (driver.Driver, error) { return k.open(u, ctx) }
	secrets := []string{u.passwordFile, u.sentinelPasswordFile, u.tokenFile, u.key}
	return location{url: u.String(), open: open, secrets: secrets, graceOff: u.graceOff, unserved: k.unserved}, nil
}

// baseScheme returns the scheme up to its plus sign.
func (k urlKind) baseScheme() string {
	base, _, _ := strings.Cut(k.scheme, "+")
	return base
}

// errorf returns an error about the URL. Its message must not repeat anything that
// may be part of a password.
func (k urlKind) errorf(format string, args ...any) error {
	return fmt.Errorf("%w URL: %s; the form is %s", ErrConfig, fmt.Sprintf(format, args...), k.syntax)
}

// split splits what follows the scheme and its colon.
func (k urlKind) split(rest string) (userinfo, hosts, path, query string, err error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return "", "", "", "", k.errorf("it has no // after %s:", k.scheme)
	}
	if strings.Contains(rest, "#") {
		return "", "", "", "", k.errorf("it has a #; write / ? # in a password as %%2F %%3F %%23, or use password-file")
	}
	rest, query, _ = strings.Cut(rest, "?")
	hosts, path, _ = strings.Cut(rest, "/")
	if strings.Contains(path+query, "@") {
		return "", "", "", "", k.errorf("it has an @ behind a / or ?; write / ? # @ in a password as %%2F %%3F %%23 %%40, or use password-file")
	}
	if i := strings.LastIndex(hosts, "@"); i >= 0 {
		userinfo, hosts = hosts[:i], hosts[i+1:]
	}
	return userinfo, hosts, path, query, nil
}

// parse parses what follows the scheme and its colon.
func (k urlKind) parse(rest string) (*serverURL, error) {
	userinfo, hosts, path, query, err := k.split(rest)
	if err != nil {
		return nil, err
	}
	u := &serverURL{urlKind: k}
	if u.user, u.password, err = u.login(userinfo); err != nil {
		return nil, err
	}
	if err := u.setHosts(hosts); err != nil {
		return nil, err
	}
	if err := u.setPath(path); err != nil {
		return nil, err
	}
	if err := u.setParameters(query); err != nil {
		return nil, err
	}
	return u, u.validate()
}

// login decodes the user and the password.
func (k urlKind) login(userinfo string) (user, password string, err error) {
	user, password, _ = strings.Cut(userinfo, ":")
	user, err1 := url.PathUnescape(user)
	password, err2 := url.PathUnescape(password)
	if err1 != nil || err2 != nil { // the errors repeat a part of the password
		return "", "", k.errorf("its user or password has a %% that does not begin the code of a character; write %% itself as %%25")
	}
	return user, password, nil
}

func (u *serverURL) setHosts(list string) error {
	if u.socket {
		if list != "" {
			return u.errorf("it has a host, and a socket has none")
		}
		return nil
	}
	for _, host := range strings.Split(list, ",") {
		addr, err := u.address(host)
		if err != nil {
			return err
		}
		u.hosts = append(u.hosts, addr)
	}
	slices.Sort(u.hosts)
	if u.family != redlockFamily { // each node has a vote
		u.hosts = slices.Compact(u.hosts)
	}
	if len(u.hosts) > 1 && !u.manyHosts {
		return u.errorf("it has several hosts; for Sentinels there is %s+sentinel://, for a Cluster %s+cluster://", u.baseScheme(), u.baseScheme())
	}
	return nil
}

// address returns one host with its port, in canonical form.
func (u *serverURL) address(text string) (string, error) {
	host, port, hasPort := strings.Cut(text, ":")
	if literal, after, ok := strings.Cut(text, "]"); ok && strings.HasPrefix(literal, "[") {
		literal, err := url.PathUnescape(literal[1:])
		ip, err2 := netip.ParseAddr(literal)
		if err != nil || err2 != nil || !ip.Is6() {
			return "", u.errorf("the text in the brackets of a host is not an IPv6 address")
		}
		host = ip.String()
		if port, hasPort = strings.CutPrefix(after, ":"); after != "" && !hasPort {
			return "", u.errorf("the text after the brackets of a host is not a port")
		}
	} else {
		switch {
		case strings.Contains(port, ":"):
			return "", u.errorf("a host has more than one colon; an IPv6 address stands in brackets, as in [::1]:%s", u.port)
		case host == "":
			return "", u.errorf("it has no host, or an empty one")
		case strings.ContainsFunc(host, notInHost):
			return "", u.errorf("a host has invalid characters")
		}
		host = strings.ToLower(host)
	}
	if !hasPort {
		return net.JoinHostPort(host, u.port), nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", u.errorf("a port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func notInHost(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(".-_", r)
}

func (u *serverURL) setPath(path string) error {
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return u.errorf("its path has a %% that does not begin the code of a character; write %% itself as %%25")
	case u.socket && path == "":
		return u.errorf("it has no path of a socket")
	case u.socket:
		u.hosts = []string{"/" + decoded}
	case u.family == zkFamily && path != "":
		u.root = "/" + decoded
	case path != "" && (u.family == etcdFamily || u.family == serviceFamily):
		return u.errorf("it has a path; names such as team/deploy distinguish locks")
	case u.family&anyRedis != 0:
		return u.setRedisPath(path)
	}
	return nil
}

func (u *serverURL) setRedisPath(path string) error {
	if u.hasMaster {
		name, rest, _ := strings.Cut(path, "/")
		u.masterName, _ = url.PathUnescape(name) // setPath has decoded it, too
		if u.masterName == "" {
			return u.errorf("it does not name the master")
		}
		path = rest
	}
	switch {
	case path == "":
	case !u.hasDB && path != "0":
		return u.errorf("a Cluster has one database, which no path can choose")
	case u.setDatabase(path) != nil:
		return u.errorf("the text after the last / is not the number of a database")
	}
	return nil
}

// validate reports parameters that contradict one another.
func (u *serverURL) validate() error {
	switch noPassword := u.password == "" && u.passwordFile == ""; {
	case u.family == serviceFamily && (u.user != "" || !noPassword):
		return u.errorf("it has a user or password; a lock service takes a token, by token-file=FILE or $%s, or a certificate, by cert and key", apiTokenVar)
	case u.family&(zkFamily|etcdFamily) != 0 && u.user == "" && !noPassword:
		return u.errorf("it has a password and no user")
	case u.family&(zkFamily|etcdFamily) != 0 && u.user != "" && noPassword:
		return u.errorf("it has a user and no password, neither in it nor by password-file")
	case u.password != "" && u.passwordFile != "", u.sentinelPassword != "" && u.sentinelPasswordFile != "":
		return fmt.Errorf("%w URL: it has a password and a file for it; drop one of them", ErrConfig)
	case (u.cert == "") != (u.key == ""):
		return fmt.Errorf("%w URL: parameters cert and key belong together; give both", ErrConfig)
	case u.insecure && (u.ca != "" || u.serverName != ""):
		return fmt.Errorf("%w URL: insecure=on checks no certificate, so ca and server-name have no effect; drop it, or drop them", ErrConfig)
	}
	return nil
}

// String returns the URL without secrets, and without what does not determine which locks it
// reaches.
func (u *serverURL) String() string {
	if u.socket {
		return u.scheme + "://" + (&url.URL{Path: u.hosts[0]}).EscapedPath() + "?db=" + strconv.Itoa(u.database)
	}
	// The zone of an IPv6 address follows a %.
	text := u.scheme + "://" + strings.ReplaceAll(strings.Join(u.hosts, ","), "%", "%25")
	if u.hasMaster {
		text += "/" + url.PathEscape(u.masterName)
	}
	if u.hasDB {
		text += "/" + strconv.Itoa(u.database)
	}
	if u.family == serviceFamily {
		text += "/"
	}
	return text + (&url.URL{Path: u.root}).EscapedPath()
}

// defaultDialTimeout is the default of the parameter dial-timeout.
const defaultDialTimeout = 5 * time.Second

// readSecret returns a password: text, or the first line of file if one is given.
func readSecret(text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	content, err := ReadFile(file)
	if err != nil {
		return "", fileError("the password", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("%w: the first line of %s is empty; write the password there", ErrConfig, file)
	}
	return line, nil
}

// credentials reads the files that the URL names for its password and for TLS.
func (u *serverURL) credentials() (password string, secure *tls.Config, err error) {
	if password, err = readSecret(u.password, u.passwordFile); err != nil {
		return "", nil, err
	}
	secure, err = u.tlsConfig()
	return password, secure, err
}

// maxFile is the greatest size of a file that the user names.
const maxFile = 16 << 20

// ReadFile reads a file that the user names, which may be a pipe. It refuses one without an end.
func ReadFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", file, maxFile>>20)
	}
	return content, err
}

func (u *serverURL) tlsConfig() (*tls.Config, error) {
	if !u.tls {
		return nil, nil //nolint:nilnil // no TLS
	}
	// Without ServerName each server is verified by the host that is dialled.
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.serverName, InsecureSkipVerify: u.insecure} //nolint:gosec // as asked for
	if u.ca != "" {
		pem, err := ReadFile(u.ca)
		if err != nil {
			return nil, fileError("the authorities", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s has no certificates in PEM", ErrConfig, u.ca)
		}
	}
	if u.cert != "" {
		cert, err := ReadFile(u.cert)
		key, keyErr := ReadFile(u.key)
		var pair tls.Certificate
		if err = cmp.Or(err, keyErr); err == nil {
			pair, err = tls.X509KeyPair(cert, key)
		}
		if err != nil {
			return nil, fileError("our certificate", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// fileError returns the error for a file that the URL names and that can't be read.
func fileError(what string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s can't be read: %w", what, err)
	}
	return fmt.Errorf("%w: %s can't be read: %w", ErrConfig, what, err)
}
