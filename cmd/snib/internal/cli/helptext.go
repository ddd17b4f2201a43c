package cli

// The texts of the help. They are indented by two, fit in 80 columns, and begin with examples.

const rootExamples = `  snib run deploy -- make deploy            one at a time; the others wait
  snib run --skip nightly -- ./report.sh    in cron: if another is on it, fine
  snib run -w 30 deploy -- make deploy      wait at most 30 s, else exit 75
  snib ls                                   who holds what
  snib show deploy                          all about one lock
  snib release deploy --force               take it from a holder that hangs
`

const runExamples = `  snib run deploy -- make deploy            one at a time; the others wait
  snib run --try deploy -- make deploy      busy: exit 75 at once
  snib run --skip nightly -- ./report.sh    busy: exit 0 (for cron)
  snib run -s db -- ./read-report           shared with other readers
  snib run --slots 3 api -- ./crawl         at most three at once
  snib run deploy -- sh -c 'deploy --fence "$SNIB_TOKEN"'
`

const runNotes = `  The command is run directly, not by a shell, with our standard input, output
  and error, in a process group of its own. TERM, HUP, INT, QUIT, USR1, USR2,
  WINCH and CONT are passed on to that group. After TERM, HUP, INT or QUIT what
  of the group has not ended is killed when --kill-after is over, counted from
  the first such signal; further ones are passed on and don't change that. The
  lock is kept until then. To a program that does something else on HUP or QUIT,
  send these yourself, or give a long --kill-after. What the command leaves
  running in the background when it ends by itself is not guarded any more.

  Waiting. A store that is out of reach, or that grants nothing because it has
  restarted, is not a lock that is taken: a run that may wait tries for a minute
  to reach the store, and says after a second why it waits; --try, --skip and a
  --wait that runs out exit 69 with the reason.

  When the command has ended we do so within 6 s, also if the store hangs. The
  lock then lapses by itself.

  Loss. While renewals fail, the command gets TERM when only --kill-after of the
  lease is left (or a third of --ttl, if that is less), and KILL before it ends.
  When the lock is gone already - released by force, or we were stopped for
  longer than the lease lasted - the command is killed at once, because another
  may be running. The exit code is 79. While we are stopped (SIGSTOP) we can't
  stop the command; SNIB_TOKEN lets the resource refuse what it then does.

  Should we be killed, the command is killed too (Linux). What it has started
  is not, but in a SQLite store the lock stays taken until the last of that is
  gone, except for programs that close the descriptors they inherit. In other
  stores it stays taken for what is left of --ttl.

  Terminal. Ctrl-C reaches the command once, and we wait for it. Ctrl-Z stops
  the command but not us: we keep the lock, so there is no prompt; another
  Ctrl-Z lets it go on, Ctrl-C ends it. If it dies of Ctrl-C, so do we ($? is
  130 either way), and a script or loop around us ends as well.

  Durations are written 30s, 5m, 1h30m; a bare number is seconds.
`

const environmentNotes = `  SNIB_NAME     the name of the lock
  SNIB_TOKEN    the fencing token: greater than that of every earlier holder
  SNIB_OWNER    the id of this hold
  SNIB_HELD     all holds around the command, outermost first, as a JSON array
                of {"store", "name", "owner"}; to run one of them again inside
                is wrong usage
`

const exitNotes = `  the command's  it ran, and the lock was held throughout; 128+N: signal N
  1     release: the lock is not held; leaks: there are some; doctor: something
        is not as it should be
  64    wrong usage
  69    the store can't be reached, does not answer, or grants nothing now
        although nobody is known to hold the lock; --skip does not hide it
  70    a bug in snib
  74    the result can't be printed
  75    somebody holds the lock: --try, or --wait is over (-E changes it);
        release: the holder changed meanwhile
  77    not allowed
  78    bad configuration: the store's URL, its file, what the server is, the
        kind of the lock, or the store has no such locks (--slots, --shared)
  79    the lock was lost while the command ran; the command was ended
  124   --timeout is over
  126   the command can't be run
  127   the command was not found
`

const storeNotes = `  The default is $XDG_STATE_HOME/snib/locks.db, or ~/.local/state/snib/locks.db,
  or for root /var/lib/snib/locks.db. Only who share a store exclude each other.
`

const parameterNotes = `  User and password stand in the URL, redis://USER:PASSWORD@HOST, or the
  password in a file. In a URL characters are percent-encoded: / is %2F, @ is
  %40, : is %3A, % is %25. A password in --url is overwritten for ps as soon as
  we start. $SNIB_URL is seen by us, root and the command that snib run starts.
  Best is a file: password-file.
`

const lsExamples = `  snib ls                     all locks that are held or waited for
  snib ls backup/             those whose names start with backup/
  snib ls -o name             for pipes
  snib ls -o json             for programs
`

const showExamples = `  snib show deploy
  snib show deploy -o json | jq .holders
`

const waitExamples = `  snib wait deploy && echo free
  snib wait deploy -w 0       is it free? 0: yes, 75: no
`

const lockExamples = `  grant=$(snib lock deploy --ttl 10m) || exit
  eval "$grant"               # exports SNIB_NAME, SNIB_OWNER and SNIB_TOKEN
  ...
  snib unlock deploy          # by SNIB_OWNER
`

const lockNotes = `  Prefer snib run: it renews the lock, notices a loss, and frees the lock
  whatever happens. This lock ends after --ttl, whether the script has ended or
  not. Give SNIB_TOKEN to the resource, so that it can refuse a script that came
  too late. With --owner, asking again extends the lock by a new --ttl.
`

const unlockExamples = `  snib unlock deploy                         by SNIB_OWNER, as snib lock set it
  snib unlock deploy --owner ci-4711
  echo "$id" | snib unlock deploy --owner -  so that ps never shows it
`

const unlockNotes = `  Exit code 79 means that the lock was not this owner's any more: somebody else
  may have held it meanwhile.
`

const releaseExamples = `  snib release deploy --force                      asks for the name to be typed
  snib release deploy --owner 4KZ7Q2... --yes      from this one hold only
`

const releaseNotes = `  It frees exactly the holds that it saw; if the holder changed meanwhile
  nothing is freed, and the exit code is 75. The former holder is not asked. If
  it is a snib run it notices within a third of its --ttl, and kills its
  command; until then that may run beside the next holder's.
`

const fenceExamples = `  snib run counter -- snib fence count.txt -- awk '{print $1 + 1}'
  snib run report -- snib fence report.html -- ./make-report
`

const fenceNotes = `  The command reads the old contents of FILE (nothing, if there is no FILE) as
  its input, and what it prints becomes the new contents, at once and whole;
  unless it fails, and then FILE stays as it was.

  The last token that was seen stands in FILE.fence. Whoever comes with a lesser
  one is refused, with exit code 79, even if it held the lock when it began: a
  process that was stopped for longer than its lease lasted can do no harm to
  FILE any more. The hold is that of the snib run or snib lock around us, as
  SNIB_NAME, SNIB_TOKEN and SNIB_OWNER have it.

  A FILE that exists without FILE.fence is refused: perhaps somebody removed
  that, and an old hold would be let in. If nobody has guarded FILE yet, the
  first one says --adopt.

  All who write FILE have to do it this way, under the same lock, on one host.
`

const redisExamples = `  snib redis forget redis://cache:6379     grant locks again, at once
`

const redisNotes = `  After a restart or a failover a Redis grants nothing until the holds are over
  that it may have forgotten; snib doctor tells for how long. forget ends that
  at once. Nobody may hold a lock then. Who did it is written to standard error.
`

const redlockExamples = `  snib redlock init redlock://a:6379,b:6379,c:6379     new servers, once
  snib redlock status                                  of $SNIB_URL
  snib redlock recover --floor 1790000000000000        a majority has forgotten
`

const redlockNotes = `  init lets new servers take part at once. They must be new: nobody may hold a
  lock that one of them has forgotten. Without init, clients let them in when
  max-ttl is over, as they do with a server that restarted.
  status exits 69 unless a majority takes part.
  recover lets servers in whose counters no majority knows, where clients are
  told to refuse that. It takes max-ttl and 2 %.
`

const schemaExamples = `  snib schema postgres | psql app
  snib schema mysql | mysql app
`

const schemaNotes = `  It is for those who make tables by migrations. Else they are made when they
  are first needed.
`

const countExamples = `  snib count                  all locks
  snib count jobs/            those whose names start with jobs/
  snib count -o number        how many are held or waited for
`

const countNotes = `  It walks through the store step by step, and holds nobody up. What is taken or
  freed meanwhile is counted or not.
`

const leaksExamples = `  snib leaks                  exit 1 if there are any
  snib leaks --held 1h        also what is held for longer than an hour
  snib leaks --fix            free them, after asking
  snib leaks -o json          for programs
`

const leaksNotes = `  endless  a hold without an end: somebody took the end of its key away
  dead     a hold of a process of this host that is not there any more
  kept     a hold whose holder is gone, and which processes that it has started
           keep until they end (SQLite); --fix leaves it alone
  distant  a hold that ends in ten years or later; --fix leaves it alone, and
           snib release --force frees it
  old      a hold that has lasted for longer than --held; --fix leaves it alone
  stuck    waiters behind an entry of one who is gone, or for what nobody holds
  foreign  what another lock library left in Redis, and nothing will end

  Each is seen twice, a second apart, or it is not reported. Holds of snib lock
  are meant to outlive their process, and are not dead. Processes are looked for
  on this host only: run it on each, as a user who may see all of them.

  A process of another container may bear this host's name and live. So a dead
  hold is watched until it would have been renewed, for a third of what is left
  of its lease, but for no longer than --settle. --fix leaves alone what was not
  watched for long enough; snib release --force frees it.

  --fix frees exactly what was found: a hold that changed meanwhile is left
  alone. Keys of other libraries are deleted with --foreign only, after a look
  at their value, and if they are strings; the others are shown.
`

const watchExamples = `  snib watch                  all locks
  snib watch jobs/            those whose names start with jobs/
  snib watch -x deploy        one lock, ten times a second
  snib watch -o json | jq -c 'select(.event == "lost")'
`

const watchNotes = `  It looks once a second, or ten times with --exact, and rests for nine times as
  long as looks take. What begins and ends between two looks is not seen. A
  hold that was broken by force counts as released. With --waiters, those that
  wait at the first look are told as waiting, and a waiter that is gone has left
  if it may have had the lock in the meantime. -o json prints one document a
  line.
`

const topExamples = `  snib top                    all locks; q ends it
  snib top jobs/ -n 3         three looks, as plain text
  snib top -o json | jq -c .count
`

const topNotes = `  The locks with the most waiters come first, then those with the most grants
  that were seen since the start. It looks once a second, as snib watch does, so
  there may have been more. The percentiles are of how long those have waited
  who wait now. Where there is no terminal it prints one look as plain text.
  -o json prints one document a line for each look, until -n ends it.
`

const doctorExamples = `  snib doctor                 the store of --url or $SNIB_URL; exit 1 if it ails
  snib doctor redis://cache.example:6379
  snib doctor -o json         for programs
`

const doctorNotes = `  ok     what was looked at is as it should be
  note   worth knowing; no promise is broken
  unmet  what a promise rests on is not the case: the exit code is 1

  It takes, renews and frees a lock of its own, and makes the store's file or
  table if there is none, as snib run does.
`

const explainExamples = `  snib explain                which lock for what
  snib explain redis          all about one backend
`

const benchExamples = `  snib bench                  the store of --url or $SNIB_URL
  snib bench redis://cache.example:6379 --for 10s --parallel 64
  snib bench -o json          for programs
`

const benchNotes = `  alone      one goroutine takes and frees one lock, again and again
  own names  --parallel goroutines, a lock each, over one connection
  hand-over  two connections want one lock: the times are those from the begin
             of a release to the grant to the other

  It loads the store for as long as --for says, three times, with locks of its
  own, whose names begin with snib-bench/. Ctrl-C ends it.
`

const versionExamples = `  snib version
  snib --version              the same, as is snib -V
`

const completionExamples = `  source <(snib completion bash)      # with the package bash-completion
  snib completion zsh > "${fpath[1]}/_snib"
  snib completion fish > ~/.config/fish/completions/snib.fish
`
