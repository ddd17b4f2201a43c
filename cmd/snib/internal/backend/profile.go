package backend

// A Profile says, for people who choose a store, what a backend is apart from its promises: a
// clause on one line for each question, in lower case and without a full stop.
type Profile struct {
	Backend   string `json:"backend"`   // the kind of store
	Protocol  string `json:"protocol"`  // what keeps its servers consistent, if anything does
	Operation string `json:"operation"` // how much work it is to run
	BestFor   string `json:"best_for"`  // what it suits best
}

// Profiles returns the profiles of all backends, in the order of [Promises].
func Profiles() []Profile {
	return []Profile{
		{
			Backend:   "memory",
			Protocol:  "none: one process",
			Operation: "none",
			BestFor:   "tests, and programs that are one process",
		},
		{
			Backend:   "sqlite",
			Protocol:  "none: transactions in one file, under one kernel",
			Operation: "none: a file on a local disk",
			BestFor:   "scheduled jobs, scripts and services on one host",
		},
		{
			Backend:   "redis",
			Protocol:  "none: one server decides, by its clock; replication is asynchronous, and the grace period covers a failover",
			Operation: "low: one server, or Sentinel or a Cluster that you run anyway; no eviction, and min-replicas-to-write if there are replicas",
			BestFor:   "many short locks at a high rate, where two holders at a time are rare and can be repaired",
		},
		{
			Backend:   "redlock",
			Protocol:  "a majority of independent servers, each by its own clock; no leader and no log",
			Operation: "medium: an odd number of servers, each on a machine of its own; all clients need the same list of them",
			BestFor:   "short locks that outlast the loss of a server without a wait, where there is Redis and no consensus store",
		},
		{
			Backend:   "postgres",
			Protocol:  "the database's log: one primary orders commits, and standbys replay them, synchronously if so configured",
			Operation: "low if the database runs anyway; failover needs a synchronous standby, or someone who checks that none was lost",
			BestFor:   "locks beside the data that they protect: the same transaction, the same backup, the same failover",
		},
		{
			Backend:   "mysql",
			Protocol:  "the database's log: one primary orders commits, and replicas apply its binary log, semi-synchronously if so configured",
			Operation: "low if the database runs anyway; failover needs a replica that has all commits",
			BestFor:   "locks beside the data that they protect: the same transaction, the same backup, the same failover",
		},
		{
			Backend:   "zookeeper",
			Protocol:  "Zab: a leader orders all writes, and one counts when a majority of the servers has it on disk",
			Operation: "high: an odd number of servers, at least three, with fast disks; tickTime, syncLimit and session timeouts to tune",
			BestFor:   "few locks that are held for long, and elections, with strong consistency, where ZooKeeper runs anyway",
		},
		{
			Backend:   "etcd",
			Protocol:  "Raft: a leader orders all writes, and one counts when a majority of the members has it on disk",
			Operation: "high: an odd number of members, at least three, with fast disks; compaction, quota and snapshots to look after",
			BestFor:   "few locks that are held for long, and elections, with strong consistency across services",
		},
	}
}
