package zklock

import (
	"cmp"
	"crypto/tls"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// An Option configures a [Driver].
type Option struct{ set func(*config) }

// Root sets the folder of the locks. All processes that are to exclude one another must use
// the same root. The folder must exist: a misspelled path is refused rather than created.
// The default is "/snib", which the driver creates with the first lock.
//
// A root that is not a valid ZooKeeper path is a [driver.ErrInvalid]. A root that does not
// exist is a [driver.ErrInvalid] of each acquisition.
func Root(path string) Option {
	return Option{func(c *config) {
		c.root, c.makeRoot = path, false
		c.refuse(checkRoot(path))
	}}
}

// Timeout sets the session timeout: the ensemble ends the session after that much silence.
// The default is 15 seconds. Less than 100 ms or more than a day is a [driver.ErrInvalid]. It is
// rounded up to milliseconds.
//
// If the timeout is less than the servers' minSessionTimeout, they use that instead. If it
// is more than their maxSessionTimeout, each call returns a [driver.ErrInvalid].
//
// Timeout replaces snib.TTL, which this backend does not use. A snib.TTL that is shorter than 5/12
// of the timeout is refused.
//
// The locks of a dead process become free after this time. A process that is cut off learns
// after 5/12 of it that its locks are lost.
func Timeout(d time.Duration) Option {
	return Option{func(c *config) {
		c.timeout = (d + time.Millisecond - 1).Truncate(time.Millisecond)
		c.refuse(checkRange("session timeout", d, 100*time.Millisecond, 24*time.Hour))
	}}
}

// DialTimeout sets how long a call waits for a connection. After that, the call fails with
// the reason why there is none. The default is 5 seconds. Less than a millisecond or more
// than an hour is a [driver.ErrInvalid].
func DialTimeout(d time.Duration) Option {
	return Option{func(c *config) {
		c.dialTimeout = d
		c.refuse(checkRange("dial timeout", d, time.Millisecond, time.Hour))
	}}
}

func checkRange(what string, d, least, most time.Duration) error {
	if d < least || d > most {
		return driver.Invalidf("%s %v: it is %v to %v", what, d, least, most)
	}
	return nil
}

// Digest sets the user and the password for ZooKeeper's authentication scheme "digest". The
// driver then creates nodes for this user only, unless [ACL] says otherwise. An empty user
// or password, or a user with a colon, is a [driver.ErrInvalid].
func Digest(user, password string) Option {
	return Option{func(c *config) {
		if user == "" || password == "" || strings.Contains(user, ":") {
			c.refuse(driver.Invalidf("digest: user and password must not be empty, and the user has no colon"))
		}
		c.digest = []byte(user + ":" + password)
	}}
}

// ACL sets the access control list of the nodes that the driver creates. By default
// everybody may do everything; with [Digest], only that user may. A list without entries is
// a [driver.ErrInvalid].
func ACL(acl ...zk.ACL) Option {
	return Option{func(c *config) {
		if c.acl = slices.Clone(acl); len(acl) == 0 {
			c.refuse(driver.Invalidf("ACL: it has no entries"))
		}
	}}
}

// TLS makes the driver connect to the servers' secure port. Without a ServerName in conf,
// each server's certificate must be valid for the host name by which the driver addresses
// it. A nil configuration is a [driver.ErrInvalid].
func TLS(conf *tls.Config) Option {
	return Option{func(c *config) {
		if c.tls = conf.Clone(); conf == nil {
			c.refuse(driver.Invalidf("TLS configuration: it is nil"))
		}
	}}
}

// KeepSuspended lets holds outlast the loss of a connection if the driver reaches the
// ensemble again, in the same session and with no shorter timeout, before their deadline. By
// default they are lost with the connection: until a server confirms the session, nobody knows
// whether it still lives. A Release whose session ends before its answer is ErrLost then.
func KeepSuspended() Option { return Option{func(c *config) { c.keepSuspended = true }} }

// CuratorReadWrite names exclusive nodes as Curator's InterProcessReadWriteLock does. By
// default they are named as its InterProcessMutex does. Those two recipes do not see each
// other's nodes, so clients of Curator use a path with one of them only. Our locks see the
// nodes of both.
func CuratorReadWrite() Option { return Option{func(c *config) { c.curatorReadWrite = true }} }

// LiteralNames uses the names of locks as names of folders without change, as clients of Curator
// and kazoo do. By default, spaces, slashes, percent signs and all characters but printable ASCII
// are escaped, so the same name is not the same path. With LiteralNames, a request
// with a name that can't be the name of one folder is a [driver.ErrInvalid]: one with a slash, for
// example.
//
// For a name that is escaped, processes with this option and without it do not exclude each other.
func LiteralNames() Option { return Option{func(c *config) { c.literalNames = true }} }

// A config holds the settings that the options made.
type config struct {
	servers          []string // each is host:port
	root             string
	makeRoot         bool // create the root if it does not exist
	timeout          time.Duration
	dialTimeout      time.Duration
	digest           []byte // user:password; nil without a user
	acl              []zk.ACL
	tls              *tls.Config
	keepSuspended    bool
	curatorReadWrite bool
	literalNames     bool
	invalid          error // why an option was refused, or nil
}

func (c *config) refuse(err error) { c.invalid = cmp.Or(c.invalid, err) }

// configure applies the options.
func configure(servers []string, opts []Option) (config, error) {
	c := config{root: defaultRoot, makeRoot: true, timeout: 15 * time.Second, dialTimeout: 5 * time.Second}
	for _, opt := range opts {
		if opt.set == nil {
			return c, driver.Invalidf("option: the zero Option")
		}
		opt.set(&c)
	}
	if c.invalid != nil {
		return c, c.invalid
	}
	if c.acl == nil {
		c.acl = zk.WorldACL(zk.PermAll)
		if c.digest != nil {
			c.acl = zk.AuthACL(zk.PermAll)
		}
	}
	if len(servers) == 0 {
		return c, driver.Invalidf("list of servers: it is empty")
	}
	for _, server := range servers {
		addr, err := address(server)
		if err != nil {
			return c, err
		}
		c.servers = append(c.servers, addr)
	}
	return c, nil
}

// address returns a server as host:port.
func address(server string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.Trim(server, "[]"), strconv.Itoa(zk.DefaultPort)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			host = ""
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "/@, ") {
		// The error does not quote the text, which may contain a password.
		return "", driver.Invalidf("server: it is neither a host nor host:port")
	}
	return net.JoinHostPort(host, port), nil
}
