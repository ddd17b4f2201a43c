package backend

import (
	"cmp"
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

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redislock"
)

// A urlKind is one of the schemes whose URLs this package parses itself. The URLs of Redis,
// ZooKeeper and etcd have the same form.
type urlKind struct {
	scheme    string
	syntax    string // the form of its URLs, for messages
	port      string // the default port of its servers
	tls       bool
	manyHosts bool // several hosts are allowed
	hasMaster bool // the path begins with the master's name
	hasDB     bool // the path may contain the number of a database
	nodes     bool // the hosts are independent of one another: Redlock
}

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

var (
	singleRedis   = urlKind{scheme: "redis", syntax: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]", port: redisPort, hasDB: true}
	redisSentinel = urlKind{
		scheme: "redis+sentinel", syntax: "redis+sentinel://[USER:PASSWORD@]HOST[:PORT],.../MASTER[/DB]", port: sentinelPort,
		manyHosts: true, hasMaster: true, hasDB: true,
	}
	redisCluster = urlKind{
		scheme: "redis+cluster", syntax: "redis+cluster://[USER:PASSWORD@]HOST[:PORT],...", port: redisPort, manyHosts: true,
	}
)

// secure returns the same kind with TLS.
func (k urlKind) secure() urlKind {
	k.tls, k.scheme, k.syntax = true, withTLS(k.scheme), withTLS(k.syntax)
	return k
}

func withTLS(text string) string {
	if rest, ok := strings.CutPrefix(text, "redlock"); ok {
		return "redlocks" + rest
	}
	return "rediss" + strings.TrimPrefix(text, "redis")
}

// A redisURL is a parsed URL of Redis.
type redisURL struct {
	urlKind

	hosts      []string // host:port, in order, each once
	user       string
	password   string
	masterName string // with Sentinel
	database   int    // its number

	dialTimeout                    time.Duration
	clientName                     string
	graceOff, durable              bool
	allowSplitBrain                bool
	maxTTL, graceFloor, yieldEvery time.Duration
	prefix                         string // of all keys and channels
	passwordFile                   string
	ca, cert, key, serverName      string
	insecure                       bool
	sentinelUser, sentinelPassword string
	sentinelPasswordFile           string
}

// A Parameter is a parameter of a URL, behind the question mark.
type Parameter struct {
	Syntax string // "failover-grace=on|off"
	Doc    string // one line for the help

	tls, sentinel bool // only with these
	nodes, store  bool // only with Redlock; only without it
	set           func(value string) error
}

func (p *Parameter) name() string {
	name, _, _ := strings.Cut(p.Syntax, "=")
	return name
}

// RedisParameters returns the parameters of the URLs of Redis, in the order in
// which the help shows them.
func RedisParameters() []Parameter { return new(redisURL).parameters() }

// parameters returns all parameters. Their set functions store the values in u.
func (u *redisURL) parameters() []Parameter {
	text := func(field *string) func(string) error {
		return func(value string) error { *field = value; return nil }
	}
	return []Parameter{
		{Syntax: "password-file=FILE", Doc: "a file whose first line is the password",
			set: text(&u.passwordFile)},
		{Syntax: "dial-timeout=DURATION", Doc: "how long to try to connect (default 5s)", set: u.setDialTimeout},
		{Syntax: "client-name=NAME", Doc: "the name of this client in CLIENT LIST", set: u.setClientName},
		{Syntax: "max-ttl=DURATION", Doc: "the longest TTL of any lock, the same for all clients (default 1h; Redlock: 1m)",
			set: u.setMaxTTL},
		{Syntax: "failover-grace=on|off", store: true, Doc: "off: grant locks at once after a restart or a failover, and do not wait " +
			"for the holds that may have been forgotten; a lock can then be granted twice (default on)",
			set: func(value string) error {
				on, err := onOff(value)
				u.graceOff = !on
				return err
			}},
		{Syntax: "durable=aof|off", store: true, Doc: "aof: one server that saves each write (appendonly yes, appendfsync always): a restart " +
			"that keeps the file forgets nothing and delays no lock; the same for all clients (default off)",
			set: func(value string) error {
				u.durable = value == "aof"
				if !u.durable && value != "off" {
					return errors.New("it is neither aof nor off")
				}
				return nil
			}},
		{Syntax: "grace-floor=DURATION", store: true, Doc: "the minimum time without grants after a restart or a failover, the " +
			"same for all clients (default 30s; Sentinel: 20s or more)",
			set: func(value string) (err error) { u.graceFloor, err = parseDuration(value, 24*time.Hour); return err }},
		{Syntax: "prefix=PREFIX", store: true, Doc: "a prefix of all keys and channels, for a user who may use no others; the same for " +
			"all clients (default none)", set: text(&u.prefix)},
		{Syntax: "yield-to-foreign=DURATION", store: true, Doc: "how often to leave a lock that snib waits for free for 300 ms, so that clients " +
			"of other libraries that poll get a chance (1s or more; default never)",
			set: func(value string) (err error) { u.yieldEvery, err = parseDuration(value, 24*time.Hour); return err }},
		{Syntax: "allow-split-brain=on|off", Doc: "Sentinel: on: accept a master without min-replicas-to-write; after a failover two masters may grant " +
			"the same lock (default off)", sentinel: true,
			set: func(value string) (err error) { u.allowSplitBrain, err = onOff(value); return err }},
		{Syntax: "ca=FILE", Doc: "TLS: a file of trusted authorities, PEM, instead of the system's", tls: true,
			set: text(&u.ca)},
		{Syntax: "cert=FILE", Doc: "TLS: a file with the client's certificate, PEM", tls: true,
			set: text(&u.cert)},
		{Syntax: "key=FILE", Doc: "TLS: a file with the key of that certificate, PEM", tls: true, set: text(&u.key)},
		{Syntax: "server-name=NAME", Doc: "TLS: the name in the server's certificate, if it is not the host", tls: true,
			set: text(&u.serverName)},
		{Syntax: "insecure=on|off", Doc: "on: TLS without a check of the certificate (default off)", tls: true,
			set: func(value string) (err error) { u.insecure, err = onOff(value); return err }},
		{Syntax: "sentinel-user=NAME", Doc: "Sentinel: the user name for the Sentinels", sentinel: true,
			set: text(&u.sentinelUser)},
		{Syntax: "sentinel-password=PASSWORD", Doc: "Sentinel: the password for the Sentinels", sentinel: true,
			set: text(&u.sentinelPassword)},
		{Syntax: "sentinel-password-file=FILE", Doc: "Sentinel: a file whose first line is that password", sentinel: true,
			set: text(&u.sentinelPasswordFile)},
	}
}

func onOff(value string) (on bool, err error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, fmt.Errorf("it is neither on nor off")
}

func (u *redisURL) setMaxTTL(value string) (err error) {
	max := 365 * 24 * time.Hour
	if u.nodes {
		max = 24 * time.Hour
	}
	u.maxTTL, err = parseDuration(value, max)
	return err
}

func (u *redisURL) setDialTimeout(value string) (err error) {
	u.dialTimeout, err = time.ParseDuration(value)
	if n, notNumber := strconv.Atoi(value); notNumber == nil {
		u.dialTimeout, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || u.dialTimeout <= 0 || u.dialTimeout > time.Hour {
		return fmt.Errorf("it is not a duration of up to an hour; give one such as 2s or 500ms")
	}
	return nil
}

// setClientName refuses what Redis refuses: "Client names cannot contain spaces,
// newlines or special characters".
func (u *redisURL) setClientName(value string) error {
	for _, r := range value {
		if r <= ' ' || r > '~' {
			return fmt.Errorf("it must be ASCII without spaces")
		}
	}
	u.clientName = value
	return nil
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
func (k urlKind) parse(rest string) (*redisURL, error) {
	userinfo, hosts, path, query, err := k.split(rest)
	if err != nil {
		return nil, err
	}
	u := &redisURL{urlKind: k}
	if err := u.setUser(userinfo); err != nil {
		return nil, err
	}
	if err := u.setHosts(hosts); err != nil {
		return nil, err
	}
	if err := u.setPath(path); err != nil {
		return nil, err
	}
	if err := u.setParameters(query, u.findParameter); err != nil {
		return nil, err
	}
	return u, u.validate()
}

func (u *redisURL) setUser(userinfo string) error {
	user, password, _ := strings.Cut(userinfo, ":")
	var err1, err2 error
	u.user, err1 = url.PathUnescape(user)
	u.password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil { // the errors repeat a part of the password
		return u.errorf("its user or password has a %% that does not begin the code of a character; write %% itself as %%25")
	}
	return nil
}

func (u *redisURL) setHosts(list string) error {
	for _, host := range strings.Split(list, ",") {
		addr, err := u.address(host)
		if err != nil {
			return err
		}
		u.hosts = append(u.hosts, addr)
	}
	slices.Sort(u.hosts)
	if !u.nodes { // each node has a vote
		u.hosts = slices.Compact(u.hosts)
	}
	if len(u.hosts) > 1 && !u.manyHosts {
		return u.errorf("it has several hosts; for Sentinels there is %s+sentinel://, for a Cluster %s+cluster://", u.baseScheme(), u.baseScheme())
	}
	return nil
}

// address returns one host with its port, in canonical form.
func (u *redisURL) address(text string) (string, error) {
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

func (u *redisURL) setPath(path string) error {
	if u.hasMaster {
		name, rest, _ := strings.Cut(path, "/")
		var err error
		if u.masterName, err = url.PathUnescape(name); err != nil || u.masterName == "" {
			return u.errorf("it does not name the master")
		}
		path = rest
	}
	switch n, err := strconv.ParseUint(path, 10, 31); {
	case path == "":
	case !u.hasDB && path != "0":
		return u.errorf("a Cluster has one database, which no path can choose")
	case err != nil:
		return u.errorf("the text after the last / is not the number of a database")
	default:
		u.database = int(n)
	}
	return nil
}

// setParameters parses what follows the question mark. find returns the parameter with a
// name, if the URL may have it.
func (k urlKind) setParameters(query string, find func(name string) (*Parameter, error)) error {
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		p, err := find(name)
		if err != nil {
			return err
		}
		value, err = url.PathUnescape(value)
		switch {
		case err != nil:
			return k.errorf("parameter %s has a %% that does not begin the code of a character; write %% itself as %%25", name)
		case value == "":
			return k.errorf("parameter %s has no value: %s", name, p.Syntax)
		case seen[name]:
			return k.errorf("parameter %s is there twice", name)
		}
		seen[name] = true
		if err := p.set(value); err != nil {
			return fmt.Errorf("%w URL: parameter %s: %w", ErrConfig, p.Syntax, err)
		}
	}
	return nil
}

// findParameter returns the parameter with that name, if the URL may have it.
func (u *redisURL) findParameter(name string) (*Parameter, error) {
	var names, close []string
	for _, p := range u.parameters() {
		switch {
		case p.nodes && !u.nodes, p.store && u.nodes:
			continue
		case p.name() == name && p.tls && !u.tls:
			return nil, fmt.Errorf("%w URL: parameter %s is for TLS; that is %s://", ErrConfig, name, withTLS(u.scheme))
		case p.name() == name && p.sentinel && !u.hasMaster:
			return nil, fmt.Errorf("%w URL: parameter %s is for Sentinels; that is %s+sentinel://", ErrConfig, name, u.baseScheme())
		case p.name() == name:
			return &p, nil
		case p.tls && !u.tls, p.sentinel && !u.hasMaster:
			continue
		}
		names = append(names, p.name())
		if distance(name, p.name()) <= 2 {
			close = append(close, p.name())
		}
	}
	// The name is not repeated: it may be part of a password.
	if len(close) > 0 {
		return nil, fmt.Errorf("%w URL: it has an unknown parameter; did you mean %s?", ErrConfig, strings.Join(close, " or "))
	}
	return nil, fmt.Errorf("%w URL: it has an unknown parameter; there are %s", ErrConfig, strings.Join(names, ", "))
}

// validate reports parameters that contradict one another.
func (u *redisURL) validate() error {
	switch {
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
func (u *redisURL) String() string {
	// The zone of an IPv6 address follows a %.
	text := u.scheme + "://" + strings.ReplaceAll(strings.Join(u.hosts, ","), "%", "%25")
	if u.hasMaster {
		text += "/" + url.PathEscape(u.masterName)
	}
	if u.hasDB {
		text += "/" + strconv.Itoa(u.database)
	}
	return text
}

// options reads the files that the URL names, and returns how to connect.
func (u *redisURL) options() (o rueidis.ClientOption, opts []redislock.Option, err error) {
	password, err := readSecret(u.password, u.passwordFile)
	if err != nil {
		return o, nil, err
	}
	sentinelPassword, err := readSecret(u.sentinelPassword, u.sentinelPasswordFile)
	if err != nil {
		return o, nil, err
	}
	secure, err := u.tlsConfig()
	if err != nil {
		return o, nil, err
	}
	dialer := net.Dialer{Timeout: cmp.Or(u.dialTimeout, defaultDialTimeout), KeepAlive: rueidis.DefaultTCPKeepAlive}
	o = rueidis.ClientOption{
		InitAddress: u.hosts, Username: u.user, Password: password, SelectDB: u.database,
		ClientName: u.clientName, TLSConfig: secure, Dialer: dialer,
	}
	if u.hasMaster {
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: u.masterName, Username: u.sentinelUser, Password: sentinelPassword,
			ClientName: u.clientName, TLSConfig: secure, Dialer: dialer,
		}
	}
	if u.maxTTL > 0 {
		opts = append(opts, redislock.MaxTTL(u.maxTTL))
	}
	if u.prefix != "" {
		opts = append(opts, redislock.Prefix(u.prefix))
	}
	if u.yieldEvery > 0 {
		opts = append(opts, redislock.YieldToForeign(u.yieldEvery))
	}
	if u.durable {
		opts = append(opts, redislock.DurableAOF())
	}
	if u.graceFloor > 0 {
		opts = append(opts, redislock.GraceFloor(u.graceFloor))
	}
	if u.allowSplitBrain {
		opts = append(opts, redislock.AllowSplitBrain())
	}
	return o, append(opts, redislock.FailoverGrace(!u.graceOff)), nil
}

// defaultDialTimeout is the default of the parameter dial-timeout.
const defaultDialTimeout = 5 * time.Second

// readSecret returns a password: text, or the first line of file if one is given.
func readSecret(text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	content, err := readStart(file, maxSecret)
	if err != nil {
		return "", fileError("the password", err)
	}
	line, _, found := strings.Cut(string(content), "\n")
	if !found && len(content) == maxSecret {
		return "", fmt.Errorf("%w: the first line of %s is longer than %d bytes, too long for a password", ErrConfig, file, maxSecret)
	}
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("%w: the first line of %s is empty; write the password there", ErrConfig, file)
	}
	return line, nil
}

// The greatest sizes of what is read from files.
const (
	maxSecret      = 64 << 10
	maxAuthorities = 16 << 20
)

// readStart reads up to n bytes of a file, which may be one without an end.
func readStart(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

func (u *redisURL) tlsConfig() (*tls.Config, error) {
	if !u.tls {
		return nil, nil //nolint:nilnil // no TLS
	}
	// Without ServerName each server is verified by the host that is dialled.
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.serverName, InsecureSkipVerify: u.insecure} //nolint:gosec // as asked for
	if u.ca != "" {
		pem, err := readStart(u.ca, maxAuthorities)
		if err != nil {
			return nil, fileError("the authorities", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s has no certificates in PEM", ErrConfig, u.ca)
		}
	}
	if u.cert != "" {
		pair, err := tls.LoadX509KeyPair(u.cert, u.key)
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
