package trial

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	serverName    = regexp.MustCompile("Valkey|Redis|PostgreSQL|MariaDB|MySQL|etcd")
	serverVersion = regexp.MustCompile(`[0-9]+\.[0-9.]+`)
)

// version returns the name and version of the servers, such as "Redis 8.6.2", or "" if there are
// none. They all have the same one.
func (k StoreKind) version(t testing.TB) (string, error) {
	if k.of().needs == nil {
		return "", nil
	}
	needs := k.of().needs[0]
	program := programs[needs](t)
	if needs == "zookeeper" { // the program is java
		jar, err := filepath.EvalSymlinks("/usr/share/java/zookeeper.jar")
		return "ZooKeeper " + serverVersion.FindString(filepath.Base(jar)), err
	}
	text, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	return fmt.Sprintf("%s %s", serverName.Find(text), serverVersion.Find(text)), nil
}
