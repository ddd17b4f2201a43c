package cli

// The texts of the help. They are indented by two, and fit in 80 columns.

const rootNotes = `snib runs programs under locks, and shows and frees the locks. A lock is in a
SQLite file, for the processes of one host, or on a server, for many hosts.
Exit codes: snib help exit-codes. Stores and their URLs: snib help stores.`

const rootExamples = `  snib run deploy -- make deploy            one at a time; the others wait
  snib run --skip nightly -- ./report.sh    in cron: if it is taken, exit 0
  snib run -w 30 deploy -- make deploy      wait at most 30 s, else exit 75
  snib ls                                   who holds what
  snib show deploy                          the details of one lock
  snib release deploy --force               take it from a hung holder
  snib doctor                               is the store fit for locks?`

const runExamples = `  snib run deploy -- make deploy            one at a time; the others wait
  snib run --try deploy -- make deploy      busy: exit 75 at once
  snib run --skip nightly -- ./report.sh    busy: exit 0 (for cron)
  snib run -s db -- ./read-report           shared with other readers
  snib run --slots 3 api -- ./crawl         at most three at once
  snib run deploy -c 'make && deploy --fence "$SNIB_TOKEN"'
  snib run a --also b -- ./move-a-to-b      holds both locks
  snib run gpu0 --also gpu1 --any -- ./train    holds one: $SNIB_NAME
`

const runNotes = `  snib runs the command directly, or with -c through a shell. The command has
  snib's standard input, output and error, and a process group of its own. The
  -- may be omitted: flags after the first word of the command belong to it.

  Several locks. --also NAME holds further locks under the same flags. If one
  can't be had, snib gives back the others. If one is lost, that is a loss. With
  --any it holds only one, the one that is free first.

  Signals. snib passes signals on to that group. After the first TERM, HUP, INT
  or QUIT, the command has the time of --kill-after to end; then snib kills the
  rest of it, and frees the lock.

  Nothing outlives the lock. Whenever snib ends the command, it ends all that
  the command started, on Linux also what timeout, set -m, setsid or su put
  into groups and sessions of their own. Elsewhere, snib finds only the
  process group (Windows: the job, which gets Ctrl-Break in place of TERM). Once
  the command has ended by itself, the lock no longer guards what it left in
  the background.

  Waiting. A store that is out of reach, or that grants nothing after a
  restart, does not mean that the lock is taken. A run that may wait retries
  for a minute while the store is out of reach, waits while a Redis grants
  nothing, and prints the reason after a second. With --try or --skip, or when
  --wait runs out, it prints the reason and exits 69.

  Loss. While renewals fail, the command gets TERM when only --kill-after of
  the lease is left (or a third of --ttl, if that is less), and KILL before the
  lease ends. If the lock is already lost, by force or because snib was stopped
  for too long, snib kills the command at once: another command may be running.
  The exit code is 79. With SNIB_TOKEN, the resource can refuse a late command.

  If snib is killed, the command is killed, too (Linux, Windows). The lock then
  stays taken for the rest of --ttl; in a SQLite store, until the last process
  that the command started has ended.

  Terminal. Ctrl-C reaches the command once, and snib waits for it. Ctrl-Z stops
  the command but not snib, which keeps the lock. Another Ctrl-Z continues it.

  Durations are written 30s, 5m, 1h30m; a bare number is seconds. Exit codes:
  snib help exit-codes. What the command sees: snib help environment.
`

const environmentNotes = `  SNIB_NAME     the name of the lock
  SNIB_TOKEN    the fencing token: greater than that of every earlier holder
  SNIB_ID       the id of this hold
  SNIB_HELD     all holds around the command, outermost first, as a JSON array
                of {"store", "name", "id", "token"}; to run one of these
                names again inside is wrong usage
`

const exitNotes = `  own  the command's own code: it ran, and the lock was held throughout; 128+N:
       signal N killed it
  1    release: the lock is not held; leaks: leaks were found; doctor: a check
       failed
  64   wrong usage
  69   the store can't be reached, does not answer, or grants nothing now
       although nobody is known to hold the lock; --skip does not hide it
  70   a bug in snib
  74   the result, the audit line, or the file of fence, can't be written
  75   somebody holds the lock, and --try was given or --wait is over (-E
       changes the code); release: the holder changed in the meantime
  77   not allowed
  78   bad configuration: the store's URL, its file, its server, the kind of
       the lock, or the store has no such locks (--slots, --shared)
  79   run: the lock was lost, and snib did not start the command, or ended it
       if it had not ended by itself; hold, lock, unlock: the hold was over, and
       somebody else may have held the lock; fence: a later hold has used FILE
  124  --timeout is over
  126  the command can't be run
  127  the command was not found
`

const storeNotes = `  The default is $XDG_STATE_HOME/snib/locks.db, or
  ~/.local/state/snib/locks.db, or for root /var/lib/snib/locks.db. On Windows,
  it is %LocalAppData%\snib\locks.db. Locks exclude each other only within one
  store.
`

const parameterNotes = `  PostgreSQL has the parameters of libpq, and MariaDB those of the Go driver,
  socket, ssl-mode, ssl-ca, ssl-cert and ssl-key. Both have password-file.

  User and password stand in the URL, redis://USER:PASSWORD@HOST. Better, keep
  the password in a file: password-file. In a URL, special characters are
  percent-encoded: / is %2F, @ is %40, : is %3A, % is %25. snib overwrites a
  password in --url as soon as it starts, so that ps does not show it.
  $SNIB_URL is visible to snib, to root, and to the command that snib run
  starts.
`

const lsExamples = `  snib ls                     all locks that are held or waited for
  snib ls backup/             locks whose names start with backup/
  snib ls lock: --foreign     also those that other libraries hold in Redis
  snib ls -o json             for programs
  snib ls --count             how many are held, and how many wait
`

const lsNotes = `  It reads the store step by step, and delays nobody. Locks that are taken or
  freed in the meantime may or may not be listed. --count keeps no list of them
  in memory.

  With --foreign and a PREFIX, each string and each hash in Redis whose key
  begins with it counts as a lock. Without a PREFIX, only keys in the format of
  a known library do, and snib reads each key of the server.
`

const showExamples = `  snib show deploy
  snib show deploy -o json | jq .holders
`

const waitExamples = `  snib wait deploy && echo free
  snib wait deploy -w 0       is it free? 0: yes, 75: no
`

const waitNotes = `  Through a lock service, it does not see that a Redis withholds free locks after
  a restart: snib run would then wait on.
`

const holdExamples = `  grant=$(snib hold deploy --pid $$) || exit
  eval "$grant"               # exports SNIB_NAME, SNIB_ID and SNIB_TOKEN
  ...                         # the end of the script frees the lock, or:
  snib unlock deploy
`

const holdNotes = `  snib hold returns when the lock is held. A process in the background renews it
  until the script ends, however it ends. Write --pid $$: this is the pid of the
  script, also in a subshell.

  While renewals fail, and when the lock is lost, that process sends TERM to the
  script, to its process group if it leads one, and on Linux to what it started.
  It can't wait until they have ended, nor find what was left in the background.
  So prefer snib run, which does, where the work is one command.
`

const lockExamples = `  grant=$(snib lock deploy --ttl 10m) || exit
  eval "$grant"               # exports SNIB_NAME, SNIB_ID and SNIB_TOKEN
  ...
  snib unlock deploy          # by SNIB_ID
`

const lockNotes = `  Prefer snib run: it renews the lock, notices a loss, and frees the lock
  whatever happens. A lock of snib lock ends after --ttl, even if the script
  still runs. Give SNIB_TOKEN to the resource, so that it can refuse a script
  that is too late. With --id "$SNIB_ID" it takes nothing, but extends that hold
  by a new --ttl; if the hold is over, it exits with 79.
`

const unlockExamples = `  snib unlock deploy                      by SNIB_ID, as snib lock set it
  echo "$id" | snib unlock deploy --id -  ps does not show this id
`

const unlockNotes = `  Exit code 79 means that the lock was not held under this id any more: somebody
  else may have held it in the meantime.
`

const releaseExamples = `  snib release deploy --force                      asks you to type the name
  snib release deploy --force --reason "hung, ticket 4711"
  snib release deploy --id 4KZ7Q2... --yes         frees this one hold only
`

const releaseNotes = `  It frees exactly the holds that it saw. If the holder changed in the
  meantime, nothing is freed, and the exit code is 75. The former holder is not
  asked. A snib run notices within a third of its --ttl, and kills its command.
  Until then, that command may run beside the next holder's.
`

const fenceExamples = `  snib run counter -- snib fence count.txt -- awk '{n=$1} END {print n+1}'
  snib run report -- snib fence report.html -- ./make-report
`

const fenceNotes = `  The command reads the old contents of FILE as its input. Its output replaces
  the contents at once and as a whole. If the command fails, FILE stays as it
  was.

  FILE.fence contains the highest token that was seen. A hold with a lower
  token is refused, with exit code 79. The hold is that of the snib run, hold or
  lock around this command, from SNIB_NAME, SNIB_TOKEN and SNIB_ID.

  A FILE that exists without FILE.fence is refused: somebody may have removed
  FILE.fence, and then an old hold would be let in. If nobody has guarded FILE
  yet, give --adopt the first time. All programs that write FILE have to do it
  this way, under the same lock, on one host.
`

const redisExamples = `  snib redis forget redis://cache:6379     grant locks again, at once
`

const redisNotes = `  After a restart or a failover, a Redis grants nothing until the holds that it
  may have forgotten are over; snib doctor says for how long. snib redis forget
  ends that time at once. Use it only when nobody holds a lock. It writes the
  name of its caller to standard error.
`

const redlockExamples = `  snib redlock init redlock://a:6379,b:6379,c:6379     admits new servers, once
  snib redlock status                                  the nodes of $SNIB_URL
  snib redlock recover --floor 1790000000000000        a majority has forgotten
`

const redlockNotes = `  init lets new servers take part at once. They must be new: nobody may hold a
  lock that one of them has forgotten. Without init, clients let them in when
  max-ttl is over. status exits 69 unless a majority takes part.

  recover lets servers in although no majority knows their counters, which go
  on from the floor. It takes max-ttl and 2 %. Stop the clients before: they
  let servers in as well, with counters that go on from the present time.
`

const schemaExamples = `  snib schema postgres | psql app
  snib schema mysql | mysql app
`

const schemaNotes = `  Use it if migrations make your tables. Otherwise, snib makes them when they
  are first needed.
`

const leaksExamples = `  snib leaks                  exit 1 if there are any
  snib leaks lock:            also each key lock:... without an end, in Redis
  snib leaks --fix            free them, after asking
  snib leaks -o json          for programs
`

const leaksNotes = `  endless    a hold without an end: somebody removed the expiry of its key
  dead       a hold of a process of this host that does not exist any more
  inherited  a hold whose holder is gone, but processes that it started keep the
             lock until they end (SQLite); --fix leaves it alone
  distant    a hold that ends in 366 days or later; --fix leaves it alone
  stuck      waiters behind the entry of a dead waiter, or for a lock that
             nobody holds
  foreign    a key in Redis that another lock library left, and that will never
             end; with a PREFIX, any string and any hash without an end

  A leak is reported only if it was seen twice, a second apart. Processes are
  looked up on this host only: run it on each host, as a user who may see all
  processes. A process in another container may have this host's name and be
  alive, so a dead hold is watched until it would have been renewed, but for no
  longer than --settle.

  --fix frees exactly what was found: a hold that changed in the meantime, or
  was not watched for long enough, is left alone. Keys of other libraries are
  deleted with --foreign only, if they are strings in the format of a known
  library. snib release NAME --force frees what --fix leaves alone, but for a
  hash of Redisson.
`

const watchExamples = `  snib watch                  all locks
  snib watch jobs/            locks whose names start with jobs/
  snib watch -o json | jq -c 'select(.event == "lost")'
`

const watchNotes = `  It reads the store once a second, or less often if that takes long: it then
  pauses for nine times as long, up to 10 s. It does not see what begins and
  ends between two readings. A hold that was broken by force counts as released.
  -o json prints one document per line.
`

const exportExamples = `  snib export                 serve http://127.0.0.1:9877/metrics
  snib export redis://cache.example:6379 --listen :9877
`

const exportNotes = `  It runs until it gets INT or TERM. One for each store is enough. It counts
  holds and waiters by classes of names, and has what snib doctor and snib leaks
  find; docs/metrics.md lists the metrics. If the store does not answer later,
  the last results stay, with their time.

  Anybody who reaches ADDRESS can read the metrics; they have no names of locks
  in full, no holders and no ids. In Redis and Redlock, it takes and frees a lock
  of its own at each reading.
`

const serveExamples = `  snib serve                  http://127.0.0.1:7420 for the default store
  snib serve redis://cache.example:6379
  curl --json '{"name":"deploy"}' localhost:7420/v1/acquire
  snib ls -u http://localhost:7420
  snib serve token ci > ci.token      a token, and its lines for a policy
  snib serve --listen :7420 --policy policy.toml --audit-log audit.jsonl \
      --tls-cert cert.pem --tls-key key.pem
`

const serveNotes = `  It runs until it gets INT or TERM. It keeps no locks itself: they are in the
  store, so each of several replicas on one store serves all clients. The other
  commands use it as a store: --url http://HOST:PORT,HOST:PORT names replicas.
  docs/serve.md has all requests.

  Without --policy, it admits everybody on this host, and nobody else, so
  ADDRESS must be a loopback address, or a Unix socket, which only its user can
  open: curl --unix-socket PATH. With --policy, it allows nothing that the
  file does not allow; docs/serve-access.md describes the file. HUP makes it
  read the policy and the certificates again, and open the audit log again.

  In ZooKeeper and etcd, a lock ends with the session of the process that took
  it, so they can't be served. Memory, Redis and Redlock have no place for the
  marks of /v1/fence; a service of a database guards any resource.
`

const doctorExamples = `  snib doctor                 the store of --url or $SNIB_URL
  snib doctor redis://cache.example:6379
  snib doctor -o json         for programs
`

const doctorNotes = `  ok     the check found nothing wrong
  note   worth knowing; no promise is broken
  unmet  an assumption of a promise is not met: the exit code is 1

  It takes, renews and frees a lock of its own, unless the table in PostgreSQL
  has triggers. It makes the store's file or table if there is none, as snib run
  does.
`

const completionExamples = `  source <(snib completion bash)      # with the package bash-completion
  snib completion zsh > "${fpath[1]}/_snib"
  snib completion fish > ~/.config/fish/completions/snib.fish
`
