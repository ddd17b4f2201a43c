package peers

import (
	"slices"

	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
)

// distlockPage is the documentation that the libraries for Redlock refer to.
const distlockPage = "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/"

// late are the faults after which a holder may work on when its lease is over.
var late = []string{"pause", "late-write"}

// longer are the faults under which a hold may last for more than a TTL: those, and the ones that
// the lab lets a holder work through. The holder works on while a waiter is stopped or restarted.
var longer = []string{
	"pause", "late-write", "stop-waiter", "kill-waiter", "lost-renewal", "cut", "late-cut", "no-answers", "store-pause",
	"store-restart", "store-forget", "disk-full",
}

// parted are the faults after which client and server may disagree about a lease.
var parted = []string{"pause", "late-write", "cut", "late-cut", "no-answers", "store-pause", "store-restart"}

// distlock are the statements of distlockPage.
var distlock = []statement{
	{text: "a client must end its work within the validity time of the lock", page: distlockPage, excludes: longer},
	{text: "a server that has lost its data must stay away for longer than the TTL of all locks", page: distlockPage, excludes: []string{"store-forget"}},
}

// ttl is the setting that all libraries have whose locks end by themselves.
const ttl = "TTL 1 s, as the lab says"

// All returns the catalog, by store.
func All() []Peer {
	return slices.Concat(onRedis(), onPostgres(), onMariaDB(), onEtcd(), onZooKeeper(), onFiles())
}

func onRedis() []Peer {
	redsync := Peer{Store: trial.Redis, Language: "Go", Library: "redsync", Version: "4.18.1", kit: linked}
	bsm := Peer{Store: trial.Redis, Language: "Go", Library: "bsm/redislock", Version: "0.9.4", kit: linked}
	rueidis := Peer{Store: trial.Redis, Language: "Go", Library: "rueidis/rueidislock", Version: "1.0.79", kit: linked}
	redisson := Peer{Store: trial.Redis, Language: "Java", Library: "Redisson", Version: "3.52.0", Held: "isHeldByCurrentThread()", kit: java}
	redisPy := Peer{Store: trial.Redis, Language: "Python", Library: "redis-py", Version: "8.1.0",
		Held: "owned()", kit: python}
	pyLock := Peer{Store: trial.Redis, Language: "Python", Library: "python-redis-lock", Version: "4.0.1",
		Held: "get_owner_id()", kit: python}
	pottery := Peer{Store: trial.Redis, Language: "Python", Library: "pottery", Version: "3.0.1", kit: python}
	redlock := Peer{Store: trial.Redis, Language: "Node.js", Library: "redlock", Version: "5.0.0-beta.2", kit: node}
	shedlock := Peer{Store: trial.Redis, Language: "Java", Library: "ShedLock", Version: "7.10.1", kit: java}

	fence := statement{text: "a client that a long pause has delayed can't tell that it has lost the lock, so the resource must check the token of an RFencedLock", page: "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/", excludes: late}
	work := statement{text: "the timeout is the longest time that the lock is held, also if the holder has not finished", page: "https://redis.readthedocs.io/en/stable/lock.html", excludes: longer}
	return []Peer{
		redsync.as("redsync", ttl, "Until()", distlock...),
		bsm.as("bsm-redislock", ttl+"; LinearBackoff(100ms) for the wait, as there is no retry by default", "TTL()"),
		rueidis.as("rueidislock", "KeyValidity 1 s, KeyMajority 2 by default, on one server", "the context of the hold", distlock...),
		rueidis.as("rueidislock-one", "KeyValidity 1 s, KeyMajority 1, as is said for one server", "the context of the hold", distlock...),
		redisson.as("redisson", "no lease time, lockWatchdogTimeout 1 s", redisson.Held, fence),
		redisson.as("redisson-lease", "lease time 1 s", redisson.Held, fence),
		redisson.as("redisson-fenced", "RFencedLock without a lease time, lockWatchdogTimeout 1 s", redisson.Held).withTokens(),
		shedlock.as("shedlock-redis", "lockAtMostFor 1 s, lockAtLeastFor 0; a loop of the target waits", "always yes", atMost),
		redisPy.as("redis-py", "none: no timeout", redisPy.Held),
		redisPy.as("redis-py-timeout", "timeout 1 s", redisPy.Held, work),
		pyLock.as("python-redis-lock", "none: no expiry", pyLock.Held),
		pyLock.as("python-redis-lock-renewal", "expire 1 s, auto_renewal", pyLock.Held),
		pottery.as("pottery", "auto_release_time 1 s", "locked()",
			statement{text: "the critical section must be over well within the auto-release time", page: "https://github.com/brainix/pottery#redlock", excludes: longer}, distlock[1]),
		redlock.as("node-redlock", ttl, "expiration", distlock...),
		redlock.as("node-redlock-using", "using(), duration 1 s", "signal.aborted", distlock...),
	}
}

// atMost is what ShedLock says of lockAtMostFor.
var atMost = statement{
	text: "lockAtMostFor must be much longer than the task normally takes; if a task takes longer, more than one process can hold the lock",
	page: "https://github.com/lukas-krecan/ShedLock#behavior", excludes: longer,
}

func onPostgres() []Peer {
	shedlock := Peer{Store: trial.Postgres, Language: "Java", Library: "ShedLock", Version: "7.10.1", kit: java}
	advisory := Peer{Store: trial.Postgres, Language: "Go", Library: "pgx", Version: "5.12.0", kit: linked}
	return []Peer{
		shedlock.as("shedlock-jdbc", "lockAtMostFor 1 s, lockAtLeastFor 0, usingDbTime(); a loop of the target waits", "always yes", atMost),
		advisory.as("pg-advisory", "pg_advisory_lock by hand, a connection for each hold", "whether the connection is open, as far as pgx knows"),
		advisory.as("pg-advisory-ping", "pg_advisory_lock by hand, a connection for each hold", "a ping of the connection"),
	}
}

func onMariaDB() []Peer {
	byHand := Peer{Store: trial.MySQL, Language: "Go", Library: "go-sql-driver/mysql", Version: "1.10.1", kit: linked}
	return []Peer{
		byHand.as("mariadb-get-lock", "GET_LOCK by hand, a connection for each hold", "always yes"),
		byHand.as("mariadb-get-lock-ping", "GET_LOCK by hand, a connection for each hold", "a ping of the connection"),
	}
}

func onEtcd() []Peer {
	mutex := Peer{Store: trial.Etcd, Language: "Go", Library: "etcd/client/v3/concurrency", Version: "3.7.3", kit: linked}
	command := Peer{Store: trial.Etcd, Language: "shell", Library: "etcdctl", Version: "as installed", kit: etcdctl}
	lease := statement{text: "a lease does not guarantee mutual exclusion: a client can claim a lease that the server has revoked, so the resource must check revisions", page: "https://etcd.io/docs/v3.6/learning/why/#notes-on-the-usage-of-lock-and-lease", excludes: parted}
	return []Peer{
		mutex.as("etcd-concurrency", "session TTL 1 s; the revision of the grant is the token", "Session.Done()", lease).withTokens(),
		command.as("etcdctl", "lock --ttl 1", "whether etcdctl runs", lease),
	}
}

func onZooKeeper() []Peer {
	zk := Peer{Store: trial.ZooKeeper, Language: "Go", Library: "go-zookeeper", Version: "1.0.4", kit: linked}
	curator := Peer{Store: trial.ZooKeeper, Language: "Java", Library: "Curator", Version: "5.9.0", kit: java}
	kazoo := Peer{Store: trial.ZooKeeper, Language: "Python", Library: "kazoo", Version: "2.11.0", kit: python}
	return []Peer{
		zk.as("go-zookeeper", "session timeout 1 s", "State() and SessionID()"),
		curator.as("curator", "InterProcessMutex, session timeout 1 s, connection timeout 1 s, ExponentialBackoffRetry(1000, 3)", "isAcquiredInThisProcess()"),
		curator.as("curator-listener", "as curator, with a ConnectionStateListener", "isAcquiredInThisProcess(), and what the listener heard"),
		kazoo.as("kazoo", "session timeout 1 s", "is_acquired"),
		kazoo.as("kazoo-listener", "session timeout 1 s, with a state listener", "what the listener heard"),
	}
}

func onFiles() []Peer {
	file := Peer{Store: trial.File, Language: "shell", Library: "flock of util-linux", Version: "as installed", kit: flock}
	return []Peer{file.as("flock", "none", "whether the command under the lock runs")}
}

// as returns a target with the library of p.
func (p Peer) as(name, settings, held string, statements ...statement) Peer {
	p.Name, p.Settings, p.Held, p.statements = name, settings, held, statements
	return p
}

func (p Peer) withTokens() Peer {
	p.Tokens = true
	return p
}
