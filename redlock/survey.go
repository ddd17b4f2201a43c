package redlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// awaitMajority waits until a majority of the nodes answers, and a little longer for the
// others. It returns an error if a node does not fit the cluster, or if ctx is done before.
func (d *Driver) awaitMajority(ctx context.Context) error {
	replies := d.pollMost(ctx, dialTimeout, codeShowNode, noLock(), nil)
	for _, r := range replies {
		if errors.Is(r.err, driver.ErrInvalid) {
			return r.err
		}
	}
	err := d.requireMajority(replies)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// handshake checks the server on a new connection to n.
func (d *Driver) handshake(ctx context.Context, n *node, client rueidis.Client) error {
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return fmt.Errorf("INFO: %w", sanitize(err))
	}
	info := rediskit.ParseInfo(text)
	if err := checkServer(n.address, info); err != nil {
		return err
	}
	known, err := client.Do(ctx, client.B().Hmget().Key(metaKey).Field("cluster", "self").Build()).ToArray()
	if err != nil || len(known) != 2 {
		return fmt.Errorf("HMGET %s: %w", metaKey, sanitize(err))
	}
	stored, _ := known[0].ToString() // nil becomes ""
	self, _ := known[1].ToString()
	if err := d.checkMembership(n, stored, self); err != nil {
		return err
	}
	return d.checkDistinct(n, info["run_id"])
}

// checkServer rejects a server that can't be a node.
func checkServer(address string, info rediskit.Info) error {
	switch {
	case info.IsSentinel():
		return driver.Invalidf("node %s: it is a Sentinel", address)
	case info.IsClusterNode():
		return driver.Invalidf("node %s: it is a node of a Redis Cluster; Redlock needs independent servers", address)
	case info["role"] != "master":
		return driver.Invalidf("node %s: it is a replica of %s; Redlock needs independent masters", address,
			info["master_host"]+":"+info["master_port"])
	case !info.AtLeast(6, 2):
		return driver.Invalidf("node %s: it is Redis %q; 6.2 is the oldest supported version", address, info["redis_version"])
	case info["run_id"] == "":
		return driver.Invalidf("node %s: INFO does not show its run_id, so a restart can't be noticed", address)
	}
	return nil
}

// checkDistinct rejects a server that is already a node under another address.
func (d *Driver) checkDistinct(n *node, run string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runIDs[n.index] = ""
	for i, other := range d.runIDs {
		if other == run {
			return driver.Invalidf("list of nodes: %s and %s are one server, which would have two votes", d.nodes[i].address,
				n.address)
		}
	}
	d.runIDs[n.index] = run
	return nil
}

// checkMembership rejects a node that other clients know as part of another cluster.
func (d *Driver) checkMembership(n *node, stored, self string) error {
	switch {
	case stored == "":
		return nil
	case stored != d.cluster:
		return driver.Invalidf("list of nodes or MaxTTL: %s belongs to %s, and here it is %s", n.address,
			formatCluster(stored), formatCluster(d.cluster))
	case self != n.address:
		return driver.Invalidf("list of nodes: the server at %s is %s", n.address, quoted(self))
	}
	return nil
}

// formatCluster formats a stored cluster for people.
func formatCluster(stored string) string {
	var c cluster
	if json.Unmarshal([]byte(stored), &c) != nil {
		return quoted(stored)
	}
	list := make([]string, len(c.Nodes))
	for i, address := range c.Nodes {
		list[i] = printable(address)
	}
	return fmt.Sprintf("[%s] with a MaxTTL of %v", strings.Join(list, " "), time.Duration(c.MaxTTL)*time.Millisecond)
}
