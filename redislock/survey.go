package redislock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/internal/redisinfo"
)

// findings are what was found out about the servers when the driver was made.
type findings struct {
	sharded  bool // sharded pub/sub
	warnings []string
}

// survey asks the servers what they are, and refuses those that the driver can't work with.
func survey(ctx context.Context, conn Conn, conf config) (findings, error) {
	var f findings
	masters, err := conn.Masters(ctx)
	if err != nil {
		return f, err
	}
	said := make(map[string]bool)
	for _, m := range masters {
		reply, err := m.Do(ctx, "INFO")
		if err != nil {
			return f, fmt.Errorf("INFO: %w", err)
		}
		text, _ := reply.(string)
		info := redisinfo.Parse(text)
		if err := check(info, conn.IsCluster(), conf); err != nil {
			return f, err
		}
		if conn.IsSentinel() && !conf.splitBrain && info["min_slaves_good_slaves"] == "" {
			return f, fmt.Errorf("%w server: min-replicas-to-write is 0 behind Sentinel, so after a failover two masters may grant the same "+
				"locks for a while; set it to 1, with a small min-replicas-max-lag, on all servers, or accept that with AllowSplitBrain",
				driver.ErrInvalid)
		}
		f.sharded = conn.IsCluster() && info.AtLeast(7, 0)
		for _, w := range warnings(ctx, m, info) {
			if !said[w] {
				said[w] = true
				f.warnings = append(f.warnings, w)
			}
		}
	}
	return f, nil
}

// check refuses a server that is too old, or not of the kind that was asked for.
func check(info redisinfo.Info, isCluster bool, conf config) error {
	switch {
	case info.IsSentinel():
		return fmt.Errorf("%w server: it is a Sentinel; name the master that it watches", driver.ErrInvalid)
	case !info.AtLeast(6, 2):
		return fmt.Errorf("%w server: it is Redis %s; 6.2 is the oldest that will do", driver.ErrInvalid, info["redis_version"])
	case info["role"] == "slave": // also one that lets itself be written to: that is lost with its next resynchronization
		return fmt.Errorf("%w server: it is a replica of %s:%s; connect to that, or by way of the Sentinels that watch it",
			driver.ErrInvalid, info["master_host"], info["master_port"])
	case info.IsClusterNode() && !isCluster:
		return fmt.Errorf("%w topology: the server is a node of a Cluster; connect to it as one", driver.ErrInvalid)
	case conf.topology == cluster && !isCluster:
		return fmt.Errorf("%w topology: the server is no node of a Cluster", driver.ErrInvalid)
	case conf.topology == single && isCluster:
		return fmt.Errorf("%w topology: the client speaks to a Cluster, not to one server", driver.ErrInvalid)
	case conf.grace && info["run_id"] == "":
		return fmt.Errorf("%w server: INFO does not tell its run_id, so a restart can't be noticed: turn failover-grace off", driver.ErrInvalid)
	}
	return nil
}

// warnings says which settings break promises. What may not be asked is not known, and said.
func warnings(ctx context.Context, m Node, info redisinfo.Info) []string {
	var all []string
	policy := info["maxmemory_policy"]
	if policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		all = append(all, fmt.Sprintf("maxmemory-policy is %s: Redis may evict locks and what it knows of tokens; noeviction is right", policy))
	}
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	if replicas == 0 {
		return all
	}
	switch n, err := setting(ctx, m, "min-replicas-to-write"); {
	case err != nil:
		all = append(all, fmt.Sprintf("min-replicas-to-write can't be read (%v)", err))
	case n == "0":
		all = append(all, "min-replicas-to-write is 0 with replicas: a master cut off from them goes on granting locks that they never hear of")
	}
	return all
}

// setting returns a configuration parameter.
func setting(ctx context.Context, m Node, name string) (string, error) {
	reply, err := m.Do(ctx, "CONFIG", "GET", name)
	if err != nil {
		return "", err
	}
	switch r := reply.(type) {
	case map[string]any: // RESP3
		if v, ok := r[name].(string); ok {
			return v, nil
		}
	case []any:
		if len(r) == 2 {
			if v, ok := r[1].(string); ok {
				return v, nil
			}
		}
	}
	return "", fmt.Errorf("CONFIG GET answered %v", reply)
}
