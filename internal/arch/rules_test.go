package arch

// A rule says what one package, or all packages of a tree ("x/..."), may import in
// addition to the standard library and themselves. Packages of the repository are given
// by directory, others by path.
type rule struct {
	pkg  string
	may  []string
	test []string // what its test files may import in addition
	why  string
}

// rootTests is what test files of the root module may import in addition: packages of the same
// module, because the root module requires no other one.
var rootTests = []string{".", "driver/...", "memlock", "fence", "internal/livetest"}

// backendTests is what test files of a backend may import in addition.
var backendTests = []string{".", "driver/...", "internal/livetest/...", "internal/outagetest", "internal/rowstest"}

// rules has a row for each package. The row of a new backend
// contains "driver" and its own client.
var rules = []rule{
	{".", []string{"driver", "driver/driverkit"}, rootTests, "the core knows the contract and the standard library, and no store"},
	{"driver", nil, rootTests, "the contract depends on nothing, so that everything can depend on it"},
	{"driver/fault", []string{"driver"}, rootTests, "a wrapper of drivers knows the contract only"},
	{"driver/drivertest", []string{"driver", "driver/fault"}, rootTests, "the suite knows no backend: it judges all of them by the contract"},
	{"driver/driverkit", []string{"driver"}, rootTests, "drivers in other modules are built on it, so it knows the contract and the standard library only"},
	{"driver/driverkit/rows", []string{"driver", "driver/driverkit"}, rootTests, "drivers for databases in other modules are built on it, and bring the clients"},
	{"memlock", []string{"driver"}, rootTests, "drivers know the contract, not the core"},
	{"fence", []string{"driver"}, rootTests, "guards stand at the resource, where there may be no lock and no store of locks"},
	{"leader", []string{".", "driver"}, rootTests, "elections stand on the core, and know of a store what the contract says"},
	{"cron", []string{".", "driver"}, rootTests, "it stands on the core, and knows no scheduler"},
	{"internal/arch", nil, nil, "the rules run before anything else builds"},
	{"internal/mutant", nil, nil, "it runs go test on changed copies of files; it links nothing of what it judges"},
	{"internal/livetest/...", []string{"driver"}, nil, "every backend's tests start servers with it, so it brings no client of any: their versions would be ours"},
	{"internal/outagetest", []string{".", "driver", "internal/livetest"}, nil, "every backend's tests let their servers fail with it, so it knows no backend"},
	{"internal/rowstest", []string{"driver", "internal/livetest"}, nil, "the tests of several databases share it, so it knows none of them"},
	{"serve", []string{"driver", "fence", "remotelock/wire", "serve/internal/...", "golang.org/x/time/rate"}, []string{"driver/...", "memlock", "internal/livetest", "remotelock"}, "a service over any driver, so it knows no store"},
	{"serve/internal/events", []string{"driver", "remotelock/wire"}, nil, "it compares what a store shows, whoever asks"},
	{"serve/internal/waiting", nil, nil, "it decides by what it is told, without a clock, a network or a lock"},
	{"serve/internal/console", nil, []string{"internal/livetest"}, "it has files: what they show comes from the API"},
	{"remotelock", []string{"driver", "remotelock/wire"}, nil,
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},
	{"remotelock/wire", []string{"driver"}, nil, "the service and its driver share it, so it brings nothing of either"},
	{"internal/history", nil, nil, "the checker knows logs only: it must not share a mistake with what it judges"},
	{"metriclabel", []string{".", "driver"}, rootTests, "the collector and the spans share it, so it brings no client of either"},
	{"metrics", []string{".", "driver", "metriclabel", "github.com/prometheus/client_golang/prometheus/..."},
		[]string{"driver/...", "memlock", "internal/livetest", "internal/livetest/promtest", "go.opentelemetry.io/contrib/bridges/prometheus", "go.opentelemetry.io/otel/sdk/..."},
		"programs that count with Prometheus inherit its client, and no others do"},
	{"metrics/oteltrace", []string{".", "metriclabel", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/trace"},
		[]string{"memlock", "go.opentelemetry.io/otel/sdk/..."},
		"it knows the API of OpenTelemetry and not its SDK, which is the program's choice"},
	{"metrics/example", []string{".", "memlock", "metrics", "github.com/prometheus/client_golang/prometheus/..."}, []string{"internal/livetest"}, "a program as a user writes it"},
	{"internal/readme", nil, nil, "the README's examples stand in the packages that they show; this one only compares and runs"},

	{"sqlitelock/...", []string{"driver", "github.com/ncruces/go-sqlite3/...", "golang.org/x/sys/..."}, backendTests,
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},

	// They are tested with a server here.
	{"redislock", []string{"driver", "driver/driverkit", "redislock/redisadmin", "redislock/rediskit", "github.com/redis/rueidis"}, append([]string{"cron", "leader"}, backendTests...),
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},
	{"redislock/redisadmin", nil, nil, "it has what an operator is told, and asks nothing"},
	{"redislock/rediskit", []string{"driver"}, nil, "drivers in two modules are built on it, so it brings no client: their versions would be its own"},
	{"redislock/redisfence", []string{"driver", "fence", "github.com/redis/rueidis"}, backendTests, "data may lie in a Redis that keeps no locks"},
	{"redislock/goredis", []string{"driver", "redislock", "github.com/redis/go-redis/v9"}, append([]string{"redislock/rediskit"}, backendTests...),
		"it lends a backend a client that the backend does not know: users of others inherit nothing of it"},

	{"redlock/...", []string{"driver", "driver/driverkit", "redislock/rediskit", "github.com/redis/rueidis"}, backendTests,
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},

	{"pglock", []string{"driver", "driver/driverkit/...", "github.com/jackc/pgx/v5/..."}, backendTests,
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},

	{"zklock/...", []string{"driver", "driver/driverkit", "github.com/go-zookeeper/zk"}, backendTests,
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},

	{"mysqllock", []string{"driver", "driver/driverkit/...", "github.com/go-sql-driver/mysql"}, backendTests,
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},

	{"etcdlock", []string{"driver", "driver/driverkit", "go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3/...", "google.golang.org/grpc/..."},
		append([]string{"go.uber.org/zap"}, backendTests...),
		"a backend knows the contract and its own client, never the core or another backend: a user inherits no third party's versions"},

	{"cmd/snib/...", []string{".", "driver", "etcdlock", "fence", "driver/driverkit", "memlock", "metrics", "mysqllock", "pglock", "redislock", "redislock/redisadmin", "redislock/rediskit", "redlock", "redlock/redlockadmin", "remotelock/...", "serve/...", "sqlitelock", "zklock", "github.com/prometheus/client_golang/prometheus/...", "github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk", "github.com/jackc/pgx/v5/...", "github.com/ncruces/go-sqlite3/...", "github.com/redis/rueidis", "github.com/BurntSushi/toml", "github.com/spf13/cobra", "github.com/spf13/pflag", "go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3", "go.uber.org/zap", "google.golang.org/grpc", "google.golang.org/grpc/codes", "golang.org/x/sys/...", "golang.org/x/term"},
		[]string{"driver/...", "internal/livetest/...", "github.com/prometheus/common/...", "github.com/rogpeppe/go-internal/..."},
		"the command is small on purpose: each dependency is agreed on here"},

	{"serve/access", []string{"driver", "remotelock/wire", "serve", "github.com/BurntSushi/toml", "golang.org/x/time/rate"}, []string{"fence", "internal/livetest", "memlock", "remotelock/..."},
		"who brings another Authorizer links nothing of it"},

	// The laboratory is one module with the libraries of others, which nobody inherits: its packages
	// may import all that is ours. These know less, so that they share no mistake with what they judge
	// or show.
	{"cmd/sniblab/...", []string{".", "cron", "driver/...", "etcdlock", "fence", "internal/history", "internal/livetest/...", "internal/rowstest",
		"leader", "memlock", "mysqllock", "pglock", "redislock/...", "redlock/...", "remotelock/...", "serve/...",
		"sqlitelock", "zklock",
		"cmd/sniblab/internal/...",
		"github.com/bsm/redislock", "github.com/charmbracelet/colorprofile", "github.com/charmbracelet/x/ansi", "github.com/chromedp/...",
		"github.com/go-redsync/redsync/v4/...", "github.com/go-sql-driver/mysql", "github.com/go-zookeeper/zk",
		"github.com/jackc/pgx/v5/...", "github.com/lib/pq", "github.com/ncruces/go-sqlite3/...", "github.com/redis/go-redis/v9", "github.com/redis/rueidis/...",
		"github.com/santhosh-tekuri/jsonschema/v6", "github.com/spf13/cobra", "go.etcd.io/etcd/client/v3/...", "go.uber.org/zap",
		"golang.org/x/mod/...", "golang.org/x/sys/...",
		"golang.org/x/term", "golang.org/x/tools/go/packages"},
		[]string{"github.com/rogpeppe/go-internal/..."},
		"an end: it starts servers, breaks them, and runs libraries of others beside ours"},
	{"cmd/sniblab/internal/judge", []string{"internal/history"}, nil,
		"it knows recorded events only: it must not share a mistake with what it judges"},
	{"cmd/sniblab/internal/process", []string{"internal/livetest"}, nil, "it runs programs, whatever they do"},
	{"cmd/sniblab/internal/target", []string{"cmd/sniblab/internal/process"}, nil, "it speaks the protocol, and knows no lock"},
	{"cmd/sniblab/internal/timeline", []string{"github.com/charmbracelet/x/ansi"}, nil, "it shows what it is told, and knows no demo"},
	{"cmd/sniblab/internal/peers", []string{"internal/livetest/...", "cmd/sniblab/internal/process", "cmd/sniblab/internal/target", "cmd/sniblab/internal/trial"}, []string{"cmd/sniblab/internal/peers/golang"},
		"it installs libraries of others, and links none of them"},

	{"examples/...", []string{".", "cron", "driver", "fence", "mysqllock", "pglock", "redislock/...", "sqlitelock", "github.com/go-co-op/gocron/v2", "github.com/google/uuid",
		"github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5/...", "github.com/ncruces/go-sqlite3/driver", "github.com/redis/rueidis"},
		[]string{"internal/livetest/...", "memlock"},
		"programs show what users write: they import what users may, and nobody imports them"},
}

// conformanceIn says where the conformance test of a backend is that is not in the backend itself.
var conformanceIn = map[string]string{
	"remotelock": "cmd/sniblab/internal/served", // it needs the service, and the backends of stores
}

// typeWords are names of types with one meaning each, see docs/glossary.md. They may be declared
// only in the packages that mean that; elsewhere the other word says what is meant.
var typeWords = map[string]struct {
	in      []string
	instead string
}{
	"hold":     {[]string{".", "cmd/sniblab/...", "fence", "internal/...", "redlock/internal/..."}, "lease, which is the store's side of a hold"},
	"guard":    {[]string{"cmd/sniblab/internal/pattern", "examples/...", "fence"}, "supervisor or monitor: a guard stands at a resource"},
	"mark":     {[]string{"fence"}, "record or entry: a mark is what a resource remembers"},
	"ask":      {nil, "attempt for a call of Acquire, round for one try of it, request for a message"},
	"place":    {[]string{".", "serve"}, "index in a block of tokens, or position in a list: a place is what a waiter has in a queue"},
	"kept":     {nil, "entry or orphan: kept says that MinHold keeps a lock taken after its release"},
	"plain":    {nil, "what it lacks: unrecorded, unlocked, exclusive"},
	"vouch":    {nil, "verifier or check"},
	"late":     {nil, "what came late: a request, a grant or a renewal"},
	"line":     {nil, "queue"},
	"turn":     {nil, "head, the first waiter of a queue"},
	"order":    {nil, "command, one request to a script"},
	"flight":   {nil, "batch, commands that are sent together"},
	"sight":    {nil, "snapshot, what one request read"},
	"notice":   {nil, "watchEvent or message"},
	"ear":      {nil, "subscriber or listener"},
	"patience": {nil, "a timeout, named by what it ends"},
}

// headings must be on every backend's page in docs/backends, in this order.
var headings = []string{"Keys", "Waiting", "Liveness", "Fencing", "Failover", "Options"}
