package zklock

import (
	"strings"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// defaultRoot is the folder of the locks unless the option [Root] names another.
const defaultRoot = "/snib"

// reserved is the folder below "/" that ZooKeeper keeps for itself. No lock may be there.
const reserved = "zookeeper"

// checkRoot returns an error if a path can't be the folder of the locks.
func checkRoot(path string) error {
	bad := func(why string) error {
		return driver.Invalidf("root %q: %s; a root is a path such as /infra/locks", path, why)
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
		case strings.ContainsFunc(part, isRefused):
			return bad("it has characters that ZooKeeper does not take")
		}
	}
	if path == "/"+reserved || strings.HasPrefix(path, "/"+reserved+"/") {
		return bad("that is ZooKeeper's own")
	}
	return nil
}

// isRefused reports whether ZooKeeper does not take a character.
func isRefused(r rune) bool { return r < ' ' || 0x7f <= r && r <= 0x9f || r >= 0xd800 }

// checkName returns an error if a name can't be that of a folder. Escaped names always can.
func (c *config) checkName(name string) error {
	if !c.literalNames {
		return nil
	}
	bad := func(why string) error {
		return driver.Invalidf("name %q: %s, and names are used without change (LiteralNames)", name, why)
	}
	switch {
	case strings.Contains(name, "/"):
		return bad("it has a slash, so it would be a path; put the part before the last slash into the root")
	case name == "." || name == "..", strings.ContainsFunc(name, isRefused):
		return bad("ZooKeeper does not take it")
	case name == absentNode, c.root == "/" && name == reserved:
		return bad("it is reserved")
	}
	return nil
}

func (c *config) missingRootError() error {
	return driver.Invalidf("root: %s does not exist in ZooKeeper; make it, or name another one", c.root)
}

// absentNode is a node name that no lock and no other client uses: names of locks escape a
// percent sign.
const absentNode = "%snib"

// folder returns the path of the node whose children contend for a lock. checkName accepts
// the name.
func (c *config) folder(name string) string {
	node := name
	if !c.literalNames {
		node = escape(name)
	}
	if c.root == "/" {
		if node == reserved {
			node = "%7Aookeeper"
		}
		return "/" + node
	}
	return c.root + "/" + node
}

const upperHex = "0123456789ABCDEF"

// escape turns a lock's name into the name of a node. Printable ASCII except the slash and
// the percent sign stays as it is. All other bytes, and the dots of the names "." and "..",
// become %XX.
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

// lockName is the inverse of folder, for a child of the root. It reports false for a node
// that is not a lock of ours, because we would have encoded its name differently.
func (c *config) lockName(node string) (name string, ok bool) {
	if c.literalNames {
		return node, utf8.ValidString(node) && c.checkName(node) == nil
	}
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

// child returns the path of a node in a folder.
func child(folder, node string) string { return strings.TrimSuffix(folder, "/") + "/" + node }

// baseName returns the last part of a path.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
