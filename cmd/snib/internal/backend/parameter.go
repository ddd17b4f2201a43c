package backend

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/zklock"
)

// A family is one of the kinds of stores whose URLs we parse ourselves.
type family uint8

const (
	redisFamily family = 1 << iota // one server, Sentinel or Cluster
	redlockFamily
	zkFamily
	etcdFamily
	serviceFamily

	anyRedis   = redisFamily | redlockFamily
	withLogins = anyRedis | zkFamily | etcdFamily
	anyServer  = withLogins | serviceFamily
)

// A Parameter is a parameter of a URL, behind the question mark.
type Parameter struct {
	Syntax string // "failover-grace=on|off"
	Doc    string // one line for the help

	of                    family
	tls, sentinel, socket bool // only with these
	set                   func(value string) error
}

func (p *Parameter) name() string {
	name, _, _ := strings.Cut(p.Syntax, "=")
	return name
}

// Parameters returns all parameters, in the order in which the help shows them.
func Parameters() []Parameter { return new(serverURL).parameters() }

// Stores returns whose parameter it is, for people.
func (p *Parameter) Stores() string {
	if p.of == anyServer {
		return "all"
	}
	var names []string
	for i, name := range []string{"Redis", "Redlock", "ZooKeeper", "etcd", "lock service"} { // as the families
		if p.of&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// parameters returns all parameters of the URLs that we parse. Their set functions store the
// values in u.
func (u *serverURL) parameters() []Parameter {
	text := func(field *string) func(string) error {
		return func(value string) error { *field = value; return nil }
	}
	choice := func(yes, no string, chosen func()) func(string) error {
		return func(value string) error {
			switch value {
			case yes:
				chosen()
			case no: // the default
			default:
				return fmt.Errorf("it is neither %s nor %s", yes, no)
			}
			return nil
		}
	}
	span := func(max time.Duration, set func(time.Duration)) func(string) error {
		return func(value string) error {
			d, err := ParseDuration(value)
			if err != nil || d <= 0 || d > max {
				return fmt.Errorf("it is not a duration of up to %v; give one such as 20s", max)
			}
			set(d)
			return nil
		}
	}
	maxTTL := 365 * 24 * time.Hour
	if u.family == redlockFamily {
		maxTTL = 24 * time.Hour
	}
	return []Parameter{
		{Syntax: "password-file=FILE", of: withLogins, Doc: "a file whose first line is the password", set: text(&u.passwordFile)},
		{Syntax: "token-file=FILE", of: serviceFamily, set: text(&u.tokenFile),
			Doc: "a file whose first line is the token that the service asks for (default $" + apiTokenVar + ")"},
		{Syntax: "dial-timeout=DURATION", of: anyServer, set: span(time.Hour, func(d time.Duration) { u.dialTimeout = d }),
			Doc: "how long to try to connect (default 5s; lock service 2s)"},
		{Syntax: "db=NUMBER", of: redisFamily, socket: true, Doc: "the database, behind a Unix socket", set: u.setDatabase},
		{Syntax: "max-ttl=DURATION", of: anyRedis, set: span(maxTTL, func(d time.Duration) {
			u.redis, u.redlock = append(u.redis, redislock.MaxTTL(d)), append(u.redlock, redlock.MaxTTL(d))
		}),
			Doc: "the longest TTL of any lock, the same for all clients (default 1h; Redlock: 1m)"},
		{Syntax: "failover-grace=on|off", of: redisFamily, set: choice("off", "on", func() { u.graceOff = true }),
			Doc: "off: grant locks at once after a restart or a failover, and do not wait " +
				"for the holds that may have been forgotten; a lock can then be granted twice (default on)"},
		{Syntax: "durable=aof|off", of: redisFamily, set: choice("aof", "off", add(&u.redis, redislock.DurableAOF())),
			Doc: "aof: one server that saves each write (appendonly yes, appendfsync always): a restart " +
				"that keeps the file forgets nothing and delays no lock; the same for all clients (default off)"},
		{Syntax: "grace-floor=DURATION", of: redisFamily, set: span(24*time.Hour, adder(&u.redis, redislock.GraceFloor)),
			Doc: "the minimum time without grants after a restart or a failover, the same for all clients (default 30s; Sentinel: 20s or more)"},
		{Syntax: "prefix=PREFIX", of: redisFamily, set: func(value string) error { adder(&u.redis, redislock.Prefix)(value); return nil },
			Doc: "a prefix of all keys and channels, for a user who may use no others; the same for all clients (default none)"},
		{Syntax: "yield-to-foreign=DURATION", of: redisFamily, set: span(24*time.Hour, adder(&u.redis, redislock.YieldToForeign)),
			Doc: "how often to leave a lock that snib waits for free for 300 ms, so that clients " +
				"of other libraries that poll get a chance (1s or more; default never)"},
		{Syntax: "allow-split-brain=on|off", of: redisFamily, sentinel: true,
			set: choice("on", "off", add(&u.redis, redislock.AllowSplitBrain())),
			Doc: "Sentinel: on: accept a master without min-replicas-to-write; after a failover two masters may grant the same lock (default off)"},
		{Syntax: "sentinel-user=NAME", of: redisFamily, sentinel: true, Doc: "Sentinel: the user name for the Sentinels", set: text(&u.sentinelUser)},
		{Syntax: "sentinel-password=PASSWORD", of: redisFamily, sentinel: true, Doc: "Sentinel: the password for the Sentinels", set: text(&u.sentinelPassword)},
		{Syntax: "sentinel-password-file=FILE", of: redisFamily, sentinel: true, Doc: "Sentinel: a file whose first line is that password",
			set: text(&u.sentinelPasswordFile)},
		{Syntax: "session-timeout=DURATION", of: zkFamily | etcdFamily,
			set: span(time.Hour, func(d time.Duration) {
				u.zk, u.etcd = append(u.zk, zklock.Timeout(d)), append(u.etcd, etcdlock.Timeout(d))
			}),
			Doc: "the time after which the store frees the locks of a silent client (default 15s)"},
		{Syntax: "suspended=lost|keep", of: zkFamily, set: choice("keep", "lost", add(&u.zk, zklock.KeepSuspended())),
			Doc: "keep: a lock outlasts its connection if another one continues the session in time (default lost)"},
		{Syntax: "curator-read-write=on|off", of: zkFamily, set: choice("on", "off", add(&u.zk, zklock.CuratorReadWrite())),
			Doc: "on: exclude both sides of Curator's InterProcessReadWriteLock, and no longer its InterProcessMutex (default off)"},
		{Syntax: "literal-names=on|off", of: zkFamily, set: choice("on", "off", add(&u.zk, zklock.LiteralNames())),
			Doc: "on: use names as they are, without escapes, as the path of another library's lock (default off)"},
		{Syntax: "ca=FILE", of: anyServer, tls: true, Doc: "TLS: a file of trusted authorities, PEM, instead of the system's", set: text(&u.ca)},
		{Syntax: "cert=FILE", of: anyServer, tls: true, Doc: "TLS: a file with the client's certificate, PEM", set: text(&u.cert)},
		{Syntax: "key=FILE", of: anyServer, tls: true, Doc: "TLS: a file with the key of that certificate, PEM", set: text(&u.key)},
		{Syntax: "server-name=NAME", of: anyServer, tls: true, set: text(&u.serverName),
			Doc: "TLS: the name in the server's certificate, if it is not the host"},
		{Syntax: "insecure=on|off", of: anyServer, tls: true, set: choice("on", "off", func() { u.insecure = true }),
			Doc: "on: TLS without a check of the certificate (default off)"},
	}
}

// adder returns a function that adds to options the one that option makes of a value.
func adder[O, V any](options *[]O, option func(V) O) func(V) {
	return func(value V) { *options = append(*options, option(value)) }
}

// add returns a function that adds option to options.
func add[O any](options *[]O, option O) func() {
	return func() { *options = append(*options, option) }
}

// ParseDuration parses a duration in Go's syntax, or a bare number of seconds.
func ParseDuration(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(n) || math.Abs(n) > math.MaxInt64/float64(time.Second)/2 {
			return 0, errors.New("it is out of range; give a duration such as 30s")
		}
		return time.Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("it is not a duration; give one such as 30s, 5m or a number of seconds")
	}
	return d, nil
}

func (u *serverURL) setDatabase(value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return errors.New("it is not the number of a database")
	}
	u.database = int(n)
	return nil
}

// setParameters parses what follows the question mark.
func (u *serverURL) setParameters(query string) error {
	return u.eachParameter(query, func(name, value, shown string) error {
		p, err := u.findParameter(name, shown)
		if err != nil {
			return err
		}
		if err := p.set(value); err != nil {
			return fmt.Errorf("%w URL: parameter %s: %w", ErrConfig, p.Syntax, err)
		}
		return nil
	})
}

// eachParameter calls fn for each parameter of a query. shown is its name for messages: behind a
// password, which may have an & in it, a name may be a part of that.
func (k urlKind) eachParameter(query string, fn func(name, value, shown string) error) error {
	seen, secret := map[string]bool{}, false
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		shown := "parameter " + name
		if secret || len(name) > 40 || strings.ContainsFunc(name, notInHost) {
			shown = "a parameter"
		}
		secret = secret || strings.Contains(name, "password")
		value, err := url.PathUnescape(value)
		switch {
		case err != nil:
			return k.errorf("%s has a %% that does not begin the code of a character; write %% itself as %%25", shown)
		case value == "":
			return k.errorf("%s has no value", shown)
		case seen[name]:
			return k.errorf("%s is there twice", shown)
		}
		seen[name] = true
		if err := fn(name, value, shown); err != nil {
			return err
		}
	}
	return nil
}

// findParameter returns the parameter with that name, if the URL may have it.
func (u *serverURL) findParameter(name, shown string) (*Parameter, error) {
	var names []string
	for _, p := range u.parameters() {
		given := p.name() == name
		switch {
		case p.of&u.family == 0 && given:
			return nil, fmt.Errorf("%w URL: parameter %s is for other stores: %s", ErrConfig, name, p.Stores())
		case p.tls && !u.tls && given && !u.socket:
			return nil, fmt.Errorf("%w URL: parameter %s is for TLS; that is %s://", ErrConfig, name, withTLS(u.scheme))
		case p.sentinel && !u.hasMaster && given:
			return nil, fmt.Errorf("%w URL: parameter %s is for Sentinels; that is %s+sentinel://", ErrConfig, name, u.baseScheme())
		case p.socket && !u.socket && given:
			return nil, u.errorf("parameter %s is for Unix sockets; elsewhere the path is the number of the database", name)
		case p.of&u.family == 0, p.tls && !u.tls, p.sentinel && !u.hasMaster, p.socket && !u.socket:
			continue
		case given:
			return &p, nil
		}
		names = append(names, p.name())
	}
	return nil, fmt.Errorf("%w URL: %s is unknown; there are %s", ErrConfig, shown, strings.Join(names, ", "))
}
