package rediskit

import (
	"strconv"
	"strings"
)

// An Info maps the name of each field in the answer to INFO, in whatever section, to its value.
type Info map[string]string

// ParseInfo parses the answer to INFO.
func ParseInfo(text string) Info {
	info := make(Info)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && !strings.HasPrefix(line, "#") {
			info[key] = value
		}
	}
	return info
}

// AtLeast reports whether the server's version is major.minor or later. It is false if the
// server gives no version.
func (i Info) AtLeast(major, minor int) bool {
	parts := strings.SplitN(i["redis_version"], ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// IsSentinel reports whether the server is a Sentinel.
func (i Info) IsSentinel() bool { return i["redis_mode"] == "sentinel" }

// IsClusterNode reports whether the server is a node of a Cluster.
func (i Info) IsClusterNode() bool {
	return i["cluster_enabled"] == "1" || i["redis_mode"] == "cluster"
}
