package zklock

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// An Option changes how a driver works.
type Option func(*config) error

// Root names the folder of the locks. It must exist: a path with a slip in it is better refused than made. All who are to
// exclude one another name the same. The default is "/snib", which is made with the first lock.
//
// A root that is not a path that ZooKeeper takes is a [driver.ErrInvalid], and so is, with each acquisition, one that does not
// exist.
func Root(path string) Option {
	return func(c *config) error {
		c.root, c.makeRoot = path, false
		return checkRoot(path)
	}
}

// Timeout asks for a session that the ensemble ends after so much silence. If that is less than its minSessionTimeout, it lasts as
// long as that; if it is more than its maxSessionTimeout, each call says so as [driver.ErrInvalid]. Locks of a dead process are free after that time, and those of a process that is
// cut off are told to be lost after 5/12 of it. The default is 15 seconds. Less than 100 ms or more than a day is a
// [driver.ErrInvalid].
func Timeout(d time.Duration) Option {
	return func(c *config) error {
		c.timeout = d
		return within("session timeout", d, 100*time.Millisecond, 24*time.Hour)
	}
}

// DialTimeout sets for how long a call waits for a connection at most, before it fails with what kept it from one. The default
// is 5 seconds. Less than a millisecond or more than an hour is a [driver.ErrInvalid].
func DialTimeout(d time.Duration) Option {
	return func(c *config) error {
		c.dial = d
		return within("dial timeout", d, time.Millisecond, time.Hour)
	}
}

func within(what string, d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%w %s %v: it is %v to %v", driver.ErrInvalid, what, d, least, most)
	}
	return nil
}

// Digest says who we are, by ZooKeeper's scheme "digest". Nodes are then made for this user only, unless [ACL] says
// otherwise. An empty user or password, or a user with a colon, is a [driver.ErrInvalid].
func Digest(user, password string) Option {
	return func(c *config) error {
		if user == "" || password == "" || strings.Contains(user, ":") {
			return fmt.Errorf("%w digest: user and password must not be empty, and the user has no colon", driver.ErrInvalid)
		}
		c.digest = []byte(user + ":" + password)
		return nil
	}
}

// ACL says who may do what with the nodes that are made. The default is that everybody may do everything, or with [Digest] that
// user. Without entries it is a [driver.ErrInvalid].
func ACL(acl ...zk.ACL) Option {
	return func(c *config) error {
		if len(acl) == 0 {
			return fmt.Errorf("%w ACL: it has no entries", driver.ErrInvalid)
		}
		c.acl = slices.Clone(acl)
		return nil
	}
}

// TLS connects to the servers' secure port. Without a ServerName in it, each server must have a certificate for the host that
// it is addressed by. A nil configuration is a [driver.ErrInvalid].
func TLS(conf *tls.Config) Option {
	return func(c *config) error {
		if conf == nil {
			return fmt.Errorf("%w TLS configuration: it is nil", driver.ErrInvalid)
		}
		c.tls = conf.Clone()
		return nil
	}
}

// KeepSuspended lets holds outlast the loss of a connection if the driver reaches the ensemble again, in the same session,
// before their deadline. By default they are lost with the connection: from then on nobody knows whether the session still
// lives, until a server says so.
func KeepSuspended() Option {
	return func(c *config) error {
		c.suspend = true
		return nil
	}
}

// CuratorReadWrite names exclusive nodes as Curator's InterProcessReadWriteLock does, and not as its InterProcessMutex does: a
// path is used with the one or the other there, too, since they do not see each other's nodes. Ours see both.
func CuratorReadWrite() Option {
	return func(c *config) error {
		c.readWrite = true
		return nil
	}
}

// A config is what the options say.
type config struct {
	servers   []string // host:port
	root      string
	makeRoot  bool // if it does not exist
	timeout   time.Duration
	dial      time.Duration
	digest    []byte // user:password; nil for nobody
	acl       []zk.ACL
	tls       *tls.Config
	suspend   bool
	readWrite bool
}

// configure reads the options. Its error is for each use of the driver to tell.
func configure(servers []string, opts []Option) (config, error) {
	c := config{root: defaultRoot, makeRoot: true, timeout: 15 * time.Second, dial: 5 * time.Second}
	for _, opt := range opts {
		if err := opt(&c); err != nil {
			return c, err
		}
	}
	if c.acl == nil {
		c.acl = worldACL()
		if c.digest != nil {
			c.acl = zk.AuthACL(zk.PermAll)
		}
	}
	if len(servers) == 0 {
		return c, fmt.Errorf("%w list of servers: it is empty", driver.ErrInvalid)
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
		return "", fmt.Errorf("%w server: it is no host, and no host:port", driver.ErrInvalid) // it may have a password in it
	}
	return net.JoinHostPort(host, port), nil
}
