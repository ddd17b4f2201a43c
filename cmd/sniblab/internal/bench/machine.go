package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// describe describes the day, the machine, and the versions of snib and of the libraries.
func describe() string {
	text := fmt.Sprintf("%s, %s, %s, snib %s.", time.Now().Format(time.DateOnly), machine(), runtime.Version(), revision())
	if all := libraries(); len(all) > 0 {
		text += " " + strings.Join(all, ", ") + "."
	}
	return text
}

// machine returns the processor, the memory and the system, as far as they are known.
func machine() string {
	text := fmt.Sprintf("%d cores", runtime.NumCPU())
	if model := find("/proc/cpuinfo", `model name\s*: (.+)`); model != "" {
		text += " (" + model + ")"
	}
	var kilobytes float64
	if _, err := fmt.Sscan(find("/proc/meminfo", `MemTotal: *(\d+)`), &kilobytes); err == nil {
		text += fmt.Sprintf(", %.0f GiB", kilobytes/(1<<20))
	}
	return strings.TrimSpace(fmt.Sprintf("%s, %s/%s %s", text, runtime.GOOS, runtime.GOARCH, find("/proc/sys/kernel/osrelease", `(\S+)`)))
}

// find returns what a group in a pattern first matches in a file, or "".
func find(file, pattern string) string {
	text, _ := os.ReadFile(file)
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// revision returns the commit of the working folder, with "-dirty" if there are changes.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "of an unknown commit"
	}
	return strings.TrimSpace(string(out))
}

// compared are the modules whose versions are told: the libraries, and the clients that snib and
// the locks by hand use.
var compared = []string{
	"github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis", "github.com/redis/go-redis/v9",
	"github.com/go-zookeeper/zk", "go.etcd.io/etcd/client/v3", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql",
}

func libraries() (all []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, path := range compared {
		for _, dep := range info.Deps {
			if dep.Path == path {
				all = append(all, strings.TrimPrefix(path, "github.com/")+" "+dep.Version)
			}
		}
	}
	return all
}
