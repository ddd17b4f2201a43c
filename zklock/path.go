package zklock

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// defaultRoot is the folder of locks unless the option [Root] names one.
const defaultRoot = "/snib"

// reserved is the folder of ZooKeeper's own below "/", in which nobody may lock.
const reserved = "zookeeper"

// checkRoot reports why a path can't be the folder of locks.
func checkRoot(path string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w root %q: %s; a root is a path such as /infra/locks", driver.ErrInvalid, path, why)
	}
	if !strings.HasPrefix(path, "/") {
		return bad("it does not begin with /")
	}
	if path == "/" {
		return nil
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch {
		case part == "":
			return bad("it has an empty part, or ends with /")
		case part == "." || part == "..":
			return bad("a part of it is . or .., which ZooKeeper does not take")
		case strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || 0x7f <= r && r <= 0x9f || r >= 0xd800 }):
			return bad("it has characters that ZooKeeper does not take")
		}
	}
	if path == "/"+reserved || strings.HasPrefix(path, "/"+reserved+"/") {
		return bad("that is ZooKeeper's own")
	}
	return nil
}

func (c *config) noRoot() error {
	return fmt.Errorf("%w root: %s does not exist in ZooKeeper; make it, or name another one", driver.ErrInvalid, c.root)
}

// noLock is a node that no lock has, nor anybody else: a percent sign is escaped in names.
const noLock = "%snib"

// folder is the node below which the contenders for a lock stand.
func (c *config) folder(name string) string {
	node := escape(name)
	if c.root == "/" {
		if node == reserved {
			node = "%7Aookeeper"
		}
		return "/" + node
	}
	return c.root + "/" + node
}

const upperHex = "0123456789ABCDEF"

// escape makes the name of a node of that of a lock. Printable ASCII stays, but for the slash and the percent sign; all other
// bytes, and the dots of the two names that are paths, become %XX.
func escape(name string) string {
	dots := name == "." || name == ".."
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || c == '/' || c == '%' || dots {
			b.WriteString(string([]byte{'%', upperHex[c>>4], upperHex[c&15]}))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// lockName is the reverse of folder, for a child of the root. A node that stands for no lock of ours is not ok: we would have
// written its name in another way.
func (c *config) lockName(node string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(node); i++ {
		if node[i] != '%' {
			b.WriteByte(node[i])
			continue
		}
		if i+2 >= len(node) {
			return "", false
		}
		high, low := strings.IndexByte(upperHex, node[i+1]), strings.IndexByte(upperHex, node[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	name = b.String()
	return name, utf8.ValidString(name) && !strings.Contains(name, "\x00") && c.folder(name) == child(c.root, node)
}

// child is the path of a node in a folder.
func child(folder, node string) string { return strings.TrimSuffix(folder, "/") + "/" + node }

// node is the last part of a path.
func node(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// worldACL lets everybody do everything.
func worldACL() []zk.ACL { return zk.WorldACL(zk.PermAll) }
