package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// aofTimeout is how long the server may take to get a write to its disk. It is shorter than
// batchTimeout.
const aofTimeout = 1500 * time.Millisecond

// waitAOF makes the server answer when its disk has all that the same connection has written. The
// answer is 1, or 0 if that took too long, and the number of replicas, which is not used.
var waitAOF = Call{Command: "WAITAOF", Args: []string{"1", "0", strconv.FormatInt(aofTimeout.Milliseconds(), 10)}}

// A saveError says that a server has done what was asked, and that it may forget that in a crash.
type saveError struct{ text string }

func (e *saveError) Error() string {
	return "the append-only file on the disk may lack it (durable=aof): " + e.text
}

// Is reports whether target is [driver.ErrUnavailable].
func (e *saveError) Is(target error) bool { return target == driver.ErrUnavailable }

// evalSaved runs a script. With saved, unsaved is not nil if the disk may lack what the script has
// written. WAITAOF counts for what its own connection has written. So it follows the script on the
// same one: then the answer comes from the server that ran the script, and not from one that has
// restarted meanwhile.
func evalSaved(ctx context.Context, eval func(context.Context, ...Call) []Reply, call Call,
	saved bool) (reply Reply, unsaved error) {
	if !saved {
		return eval(ctx, call)[0], nil
	}
	r := eval(ctx, call, waitAOF)
	switch saved := r[1]; {
	case saved.Err != nil:
		unsaved = &saveError{saved.Err.Error()}
	case len(saved.Lines) != 2:
		unsaved = &saveError{fmt.Sprintf("WAITAOF answered %q", saved.Lines)}
	case saved.Lines[0] != "1":
		unsaved = &saveError{fmt.Sprintf("it was not written within %v; appendfsync must be always", aofTimeout)}
	}
	return r[0], unsaved
}

// checkDurable rejects a server on which [DurableAOF] promises nothing. With appendfsync everysec,
// WAITAOF of Redis 7 and of Valkey answers too early.
func checkDurable(ctx context.Context, conn Conn, m Node, info rediskit.Info) error {
	switch {
	case conn.IsCluster() || conn.IsSentinel():
		return driver.Invalidf("DurableAOF: it is for a server that no other one replaces, not for a Cluster or Sentinel")
	case !info.AtLeast(7, 2):
		return driver.Invalidf("DurableAOF: the server is Redis %s; 7.2 is the oldest that has WAITAOF",
			info["redis_version"])
	case info["connected_slaves"] != "0":
		return driver.Invalidf("DurableAOF: the server has replicas; one that takes its place may lack the last leases")
	}
	for _, want := range [...][2]string{{"appendonly", "yes"}, {"appendfsync", "always"},
		{"no-appendfsync-on-rewrite", "no"}} {
		got, err := setting(ctx, m, want[0])
		if err == nil && got != want[1] {
			err = driver.Invalidf("DurableAOF: %s is %s; set it to %s in the server's configuration file", want[0], got, want[1])
		}
		if err != nil {
			return err
		}
	}
	_, err := m.Do(ctx, append([]string{waitAOF.Command}, waitAOF.Args...)...)
	return err
}
