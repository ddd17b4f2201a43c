package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// findings are what the driver found out about the servers when it was made.
type findings struct {
	sharded  bool // all of them have sharded pub/sub
	warnings []string
}

// probe is probeServers for the first contact: it ends after dialTimeout, and says so if ctx ended
// before.
func probe(ctx context.Context, conn Conn, conf config) (findings, error) {
	bounded, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	found, err := probeServers(bounded, conn, conf)
	if own, ok := ctx.Deadline(); ok && errors.Is(err, context.DeadlineExceeded) {
		if end, _ := bounded.Deadline(); end.Equal(own) {
			<-ctx.Done() // the connection looks at the deadline, and may be a little faster
		}
	}
	switch {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return found, openError(ctx)
	}
	return found, connectError(err)
}

// probeServers checks the servers' versions, roles and settings. It returns an error for a
// server that the driver can't work with.
func probeServers(ctx context.Context, conn Conn, conf config) (findings, error) {
	var f findings
	masters, err := conn.Masters(ctx)
	if err != nil {
		return f, err
	}
	f.sharded = conn.IsCluster()
	for _, m := range masters {
		info, err := infoOf(ctx, m)
		if err != nil {
			return f, err
		}
		if err := checkServer(info, conn.IsCluster(), conf); err != nil {
			return f, err
		}
		if conf.durable {
			if err := checkDurable(ctx, conn, m, info); err != nil {
				return f, err
			}
		}
		if conn.IsSentinel() && !conf.splitBrain && info["min_slaves_good_slaves"] == "" {
			return f, driver.Invalidf(
				"server: min-replicas-to-write is 0 behind Sentinel, so after a failover two masters may grant the same " +
					"locks for a while; set it to 1, with a small min-replicas-max-lag, on all servers, or accept that with " +
					"AllowSplitBrain")
		}
		if err := checkScripts(ctx, m); err != nil {
			return f, err
		}
		f.sharded = f.sharded && info.AtLeast(7, 0)
		for _, w := range warnings(ctx, m, info) {
			if !slices.Contains(f.warnings, w) {
				f.warnings = append(f.warnings, w)
			}
		}
	}
	return f, nil
}

// infoOf returns what a server says of itself.
func infoOf(ctx context.Context, m Node) (rediskit.Info, error) {
	reply, err := m.Do(ctx, "INFO")
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	return rediskit.ParseInfo(strings.Join(reply, "")), nil
}

// checkScripts rejects a server on which our user may run no scripts. A server that does not
// answer, such as one whose writes are paused, has not refused them.
func checkScripts(ctx context.Context, m Node) error {
	_, err := m.Do(ctx, "EVAL", "return 1", "0")
	if errors.As(err, new(*ReplyError)) && !isTransient(err) {
		return driver.Invalidf(
			"server: it refuses scripts (%v), which all locks need; give the user the rights +eval and +evalsha", err)
	}
	return context.Cause(ctx)
}

// checkServer rejects a server that is too old, or of a kind that the client can't use.
func checkServer(info rediskit.Info, isCluster bool, conf config) error {
	switch {
	case info.IsSentinel():
		return driver.Invalidf("server: it is a Sentinel; name the master that it watches")
	case !info.AtLeast(6, 2):
		return driver.Invalidf("server: it is Redis %s; 6.2 is the oldest supported version", info["redis_version"])
	// Also one that accepts writes: they are lost with its next resynchronization.
	case info["role"] == "slave":
		return driver.Invalidf(
			"server: it is a replica of %s:%s; connect to that server, or through the Sentinels that watch it",
			info["master_host"], info["master_port"])
	case info.IsClusterNode() && !isCluster:
		return driver.Invalidf("topology: the server is a node of a Cluster; connect to it as to a Cluster")
	case conf.grace && info["run_id"] == "":
		return driver.Invalidf(
			"server: INFO does not show its run_id, so a restart can't be noticed: turn failover-grace off")
	}
	return nil
}

// warnings returns a text for each setting that breaks a promise, and for a setting that the
// user may not read.
func warnings(ctx context.Context, m Node, info rediskit.Info) []string {
	var all []string
	policy := info["maxmemory_policy"]
	if policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		all = append(all, fmt.Sprintf("maxmemory-policy is %s: Redis may evict locks and the last tokens; set it to "+
			"noeviction", policy))
	}
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	if replicas == 0 {
		return all
	}
	switch n, err := setting(ctx, m, "min-replicas-to-write"); {
	case err != nil:
		all = append(all, fmt.Sprintf("min-replicas-to-write can't be read (%v)", err))
	case n == "0":
		all = append(all, "min-replicas-to-write is 0 with replicas: a master that is cut off from them goes on "+
			"granting locks that they never receive")
	}
	return all
}

// setting returns a configuration parameter.
func setting(ctx context.Context, m Node, name string) (string, error) {
	reply, err := m.Do(ctx, "CONFIG", "GET", name)
	if err != nil {
		return "", err
	}
	if len(reply) != 2 {
		return "", fmt.Errorf("CONFIG GET answered %q", reply)
	}
	return reply[1], nil
}
