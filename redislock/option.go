package redislock

// An Option changes what a driver does. The zero set is right for most.
type Option func(*config)

type config struct {
	grace    bool
	topology topology
}

// A topology is what must be found behind an address.
type topology uint8

const (
	anyTopology topology = iota
	single
	cluster
)

func configure(opts []Option) config {
	conf := config{grace: true}
	for _, o := range opts {
		o(&conf)
	}
	return conf
}

// FailoverGrace says whether a server that has restarted, or was promoted, grants nothing until the leases that it may have forgotten
// are over. It is on by default; off, a failover can give a lock twice. It also delays the first locks of a server that is younger
// than their TTL, up to a minute, if that has no memory of locks.
//
// It asks the server for INFO. All processes that share locks should have the same setting.
func FailoverGrace(on bool) Option { return func(c *config) { c.grace = on } }

// Single demands one server, alone or behind Sentinel: with a node of a Cluster, Open and New fail.
func Single() Option { return func(c *config) { c.topology = single } }

// Cluster demands a Cluster: without one, Open and New fail.
func Cluster() Option { return func(c *config) { c.topology = cluster } }
