# Thin on purpose: every target is a command or two over the Go tools. The modules come from go.work (the pattern
# "work"), so a new one joins by itself.

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4

BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260709024250-82a0b07e230d

# Nothing is skipped silently: the end lists the skipped tests with their reasons, and each failure. No test is repeated.
GOTESTSUM := go run gotest.tools/gotestsum@v1.13.0
GOTEST := $(GOTESTSUM) --format standard-quiet

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec

export GOWORK := $(CURDIR)/go.work

# How long each fuzz target runs; how often the conformance suite runs, and where; which share of the long tests to run;
# how many worlds are simulated, from which seed on; how long the nemesis runs in all, with which seed (0: a new one), and
# which set-ups and faults (none: all); what a benchmark's name matches, and in how many rounds: benchstat needs six for its
# intervals. Which targets the lab runs.
FUZZTIME ?= 30s
COUNT ?= 20
BACKENDS ?= $$(grep -rl --include='*_test.go' '^func TestConformance(' . | xargs -n 1 dirname | sort -u)
SHARE ?= 1
OFFLINE ?=
SEEDS ?= 10000
FIRST ?= 0
BENCH ?= .
TIME ?= 3m
SEED ?= 0
SETUPS ?=
FAULTS ?=
ROUNDS ?= 6
TARGETS ?= snib foreign

# Tests wait for servers and clocks far more than they compute: four packages at a time, and four tests of each, fit on two processors.
TESTFLAGS ?= -p 4 -parallel 4
# The packages that try snib beside other software, or that judge, measure or release it: "make others" runs their tests.
OTHERS := /cmd/sniblab($$|/internal/(bench|demo|interop|judge|pattern|peers|process|release|served/browser|target|timeline|trial)(/|$$))
# The slowest packages begin first. Otherwise one of them would run on alone at the end.
TESTS = ./cmd/snib ./pglock ./cmd/sniblab/internal/served ./cmd/sniblab/internal/nemesis ./etcdlock ./zklock ./mysqllock ./redlock ./redislock $$(go list work | grep -vE '$(OTHERS)')

.PHONY: help test others nightly vet size lint vuln fmt stress mutants long platforms windows simulate model attack nemesis lab console pictures drawing million fuzz bench release release-test deps foreign-deps lint-deps

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

test: deps ## all that must pass before a commit: vet, and the product's tests with the race detector
	@# With -race, the tests use what vet has compiled. They need not run some of its checks again.
	go vet -race work
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	$(GOTEST) --jsonfile "$$log" --packages "$(TESTS)" -- $(TESTFLAGS) -race -vet=off -timeout 30m; \
	echo "the slowest tests:"; $(GOTESTSUM) tool slowest --num 10 --jsonfile "$$log"

others: foreign-deps ## the tests that "make test" leaves out: beside other libraries, in a browser, of the lab, benchmarks and releases
	$(GOTEST) --packages "$$(go list work | grep -E '$(OTHERS)')" -- $(TESTFLAGS) -vet=off -timeout 30m

nightly: ## all that takes too long for "make test"; .ci/run runs most of it in short forms
	$(MAKE) others
	$(MAKE) long
	$(MAKE) mutants
	$(MAKE) stress COUNT=5
	$(MAKE) fuzz
	$(MAKE) release-test
	$(MAKE) simulate model million
	$(MAKE) lab nemesis TIME=10m

vet: ## vet each module by its own go.mod, as its users see it
	@for dir in $$(go list -m -f '{{.Dir}}'); do (cd "$$dir" && GOWORK=off go vet ./...) || exit; done

lint: lint-deps ## golangci-lint, built from source the first time, and luacheck
	go run $(GOLANGCI) run $$(go list -m -f '{{.Dir}}/...')
	@# Luacheck can't see what a file takes from those before it, so it gets the scripts that Go joins. They are kept if it objects.
	@dir=$$(mktemp -d); cp .luacheckrc "$$dir"; \
	SNIB_LUA="$$dir" go test -count=1 -run '^TestLuaScripts$$' $$(grep -rl --include='*_test.go' 'livetest[.]LuaScripts(' . | xargs -n 1 dirname | sort -u); \
	(cd "$$dir" && luacheck -q --no-color .) || { echo "make: the scripts that luacheck looked at are in $$dir" >&2; exit 1; }; \
	rm -r "$$dir"

vuln: ## known vulnerabilities in what is linked; OFFLINE=ok: say so, and go on, where the database can't be reached
	@for dir in $$(go list -m -f '{{.Dir}}'); do \
		out=$$(cd "$$dir" && GOWORK=off go run $(GOVULNCHECK) ./... 2>&1) && continue; \
		case "$$out" in *"fetching vulnerabilities"*) [ -z "$(OFFLINE)" ] || { \
			echo "make: NOT CHECKED for known vulnerabilities: the database can't be reached"; exit 0; };; esac; \
		printf '%s\n' "$$out"; exit 1; \
	done

fmt: ## gofmt and the order of imports
	go run $(GOLANGCI) fmt $$(go list -m -f '{{.Dir}}')

size: ## how many lines each part has, and words the pages, beside what docs/budget.md allows
	@go test -count=1 -v -run '^TestSize$$' ./internal/arch | grep -E ' [0-9]+ of | product'

PLATFORMS := linux/arm64 linux/386 linux/arm darwin/arm64 freebsd/amd64 windows/amd64

platforms: ## types of all modules on other platforms, and the tests of the core on 386
	go run ./cmd/sniblab/internal/release/typecheck $(PLATFORMS)
	GOARCH=386 CGO_ENABLED=0 go test . ./cron ./driver/... ./fence ./leader ./memlock ./sqlitelock

windows: ## the tests of what Windows runs, in Wine 10 or later; earlier versions lack what Go and SQLite need
	@wine --version | grep -qE '^wine-[1-9][0-9]' || { echo "make: install Wine 10 or later, which Debian 13 has" >&2; exit 1; }
	@WINEDEBUG=-all wine cmd /c exit # it starts the services of Wine, which would keep the output of a test open
	WINEDEBUG=-all GOOS=windows CGO_ENABLED=0 go test -count=1 -exec wine . ./cron ./driver/... ./leader ./memlock ./sqlitelock
	@# One at a time: they count and kill processes. Ctrl-Break does not reach another process group in Wine.
	WINEDEBUG=-all GOOS=windows CGO_ENABLED=0 go test -count=1 -p 1 -exec wine -skip '^TestInterrupt$$' ./cmd/snib ./cmd/snib/internal/child

stress: deps ## the conformance suite on each of BACKENDS, COUNT=20 times with the race detector
	go test -race -count=$(COUNT) -timeout 6h -run '^TestConformance' $(BACKENDS)

long: foreign-deps ## the tests that "make test" leaves out because they take long; SHARE=3: one of three, another one each day
	@files=$$(grep -rl --include='*_test.go' 'livetest[.]Long(' .); \
	names=$$(awk -F'[ (]' '/^func Test/ {name = $$2} /livetest[.]Long\(/ {print name}' $$files | sort -u | \
		awk -v share=$(SHARE) -v day="$$(date +%-j)" 'NR % share == day % share' | paste -sd'|'); \
	SNIB_LONG=1 $(GOTEST) --packages "$$(dirname $$files | sort -u | paste -sd' ')" -- -race -timeout 2h -run "^($$names)$$"

mutants: ## break guarantees one after another, and see that their tests notice
	go test -tags mutants -count=1 -timeout 3h -run '^TestMutants$$' ./internal/mutant

simulate: ## SEEDS=10000 simulated worlds of Redlock, from seed FIRST=0 on
	go test -count=1 -timeout 24h -run '^TestSimulate$$' -v ./redlock/internal/quorumtest -args -seeds $(SEEDS) -first $(FIRST)

model: foreign-deps ## check the model of Redlock with Spin
	docs/models/check.sh

ATTACKS := ACL|DistantEnd|Flood|Foreign(Channel|MarkFile)|Forged|Hostile|Links|LongBody|Malformed|Marks(AreGone|AreReplaced)|Modes|NoPa(rtOf|ssword)|Permissions|Planted|PostgresDoctorTable|ReaderBlocks|Redirect|ReleasedLeasesDoNotCount|Roles|Slow(Body|Handlers)|StateFolder|TransportFindings|TwoUsers|Wild

attack: deps ## attack running stores, guards and the command as strangers with little access would
	go test -count=1 -v -run '^Test($(ATTACKS))' ./fence ./sqlitelock ./redislock/... ./redlock/... ./pglock ./mysqllock ./zklock ./etcdlock ./cmd/snib/... | \
		grep -E '^(--- |ok|FAIL|panic)'

nemesis: deps ## processes on all stores under faults for TIME=3m, judged by their logs; SEED= repeats the faults of a run, SETUPS=redis,pg and FAULTS=store-restart choose
	go test -count=1 -timeout 24h -parallel 4 -run '^(TestNemesis|TestControls|TestAssumptions)$$' -v ./cmd/sniblab/internal/nemesis -args -time $(TIME) -seed $(SEED) -setups '$(SETUPS)' -faults '$(FAULTS)'

million: deps ## a million names locked by a process: its memory; a million locks in Redis, and a busy store for a minute: what snib ls --count and snib leaks take, and find
	SNIB_LOCKS=1000000 go test -count=1 -v -run '^TestManyNames$$' .
	cd cmd/snib && SNIB_LOCKS=1000000 SNIB_BUSY=60 go test -count=1 -timeout 30m -v -run 'TestManyLocks|TestLeaksOnABusyStore' .

lab: foreign-deps ## the lab: controls, then each of TARGETS (by default, snib on all stores and the libraries of others) for TIME=3m
	cd cmd/sniblab && SNIB_LAB="--for $(TIME) $(addprefix --target ,$(TARGETS))" \
		go test -count=1 -timeout 24h -v -run '^TestMatrix$$' .

fuzz: ## each fuzz target for FUZZTIME=30s
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | { found=; while IFS=: read -r file func; do \
		found=1; echo "$$func"; \
		go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit; \
	done; [ "$$found" ] || { echo "make: there are no fuzz targets" >&2; exit 1; }; }

bench: ## snib beside other libraries: the benchmarks that match BENCH=. (a store, such as Redis), in ROUNDS=6 rounds, compared by benchstat
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; go test -c -o "$$dir/bench" ./cmd/sniblab/internal/bench; \
	for turn in $$(seq $(ROUNDS)); do \
		"$$dir/bench" -test.run '^$$' -test.bench '$(BENCH)' -turn $$((turn - 1)); \
	done | tee "$$dir/figures"; \
	go run $(BENCHSTAT) -table .config,.name -col /lib "$$dir/figures"

release: ## commit, tags and files of VERSION=v0.1.0, in dist; nothing is pushed (CONTRIBUTING.md)
	go run ./cmd/sniblab/internal/release '$(VERSION)'

release-test: ## a release of the working tree, which is then installed from outside; nothing remains
	go test -count=1 -timeout 1h -run '^TestWhole$$' -v ./cmd/sniblab/internal/release -args -whole

console: foreign-deps ## build the web console from serve/internal/console/ui
	SNIB_LONG=1 UPDATE=1 go test -count=1 -run '^TestBuilt$$' ./serve/internal/console

drawing: ## the drawing of imports in docs/design.md
	UPDATE=1 go test -count=1 -run '^TestDrawing$$' ./internal/arch

pictures: foreign-deps ## pictures of each view of the web console, in cmd/sniblab/internal/served/browser/pictures, and of the README: no user downloads them
	go run ./cmd/sniblab demo paused-client --svg docs/paused-client.svg
	go test -count=1 -run '^Test(Looks|FirstSteps|Reservations|Rights)$$' ./cmd/sniblab/internal/served/browser -args -pictures pictures

# What the tests need beside Go: a C compiler for the race detector, and real servers. "make test" installs what is missing
# from Debian's packages, as program:package, and then nothing may be missing: see SNIB_REQUIRE.
NEEDS := $(shell go env CC):gcc $(shell go env CXX):g++ sqlite3:sqlite3 redis-server:redis-server \
	/usr/lib/postgresql/*/bin/postgres:postgresql /usr/sbin/pgbouncer:pgbouncer \
	/usr/sbin/mariadbd:mariadb-server \
	/usr/share/zookeeper/bin/zkServer.sh:zookeeper /usr/share/java/slf4j-simple.jar:libslf4j-java \
	/usr/share/java/netty-codec.jar:libnetty-java promtool:prometheus /usr/sbin/nginx:nginx
export SNIB_REQUIRE ?= redis,postgres,mysql,zookeeper,etcd,prometheus,nginx

# What the other tests need: the runtimes of other clients, a browser, and the model checker.
foreign-deps: NEEDS += node:nodejs npm:npm python3:python3 pip3:python3-pip /usr/lib/jvm/*/bin/javac:default-jdk-headless \
	/usr/share/java/curator-recipes.jar:libcurator-recipes-java spin:spin chromium:chromium
others long console pictures lab: export SNIB_REQUIRE := $(SNIB_REQUIRE),node,python,chromium

# What "make lint" needs beside Go.
lint-deps: NEEDS := luacheck:lua-check

deps foreign-deps lint-deps:
	@set -f; missing=; for need in $(NEEDS); do \
		set +f; [ -n "$$(compgen -G "$${need%%:*}" || command -v "$${need%%:*}")" ] || missing+=" $${need##*:}"; set -f; \
	done; set +f; \
	[ -z "$$missing" ] || { \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		{ command -v apt-get && { [ -z "$$sudo" ] || command -v sudo; }; } >/dev/null || { \
			echo "make: these packages of Debian are needed; please install what they stand for:$$missing" >&2; exit 1; }; \
		case "$$missing" in *gcc*) missing+=" libc6-dev";; esac; \
		case "$$missing" in *postgresql*) \
			conf=/etc/postgresql-common/createcluster.conf; \
			[ -e $$conf ] || { $$sudo mkdir -p $${conf%/*} && echo "create_main_cluster = false" | $$sudo tee $$conf >/dev/null; }; \
		esac; \
		$$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
			-o Dpkg::Options::=--force-confold $$missing || { \
			echo "make: these packages of Debian are needed, and apt-get did not install them:$$missing" >&2; exit 1; }; \
	}
