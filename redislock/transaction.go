package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sniblock/snib/redislock/rediskit"
)

// heartbeats after which a waiter is removed, in microseconds, and for how many ms the queue lasts.
// Both are those of script/token.lua.
const (
	absence   = 15_000_000
	queueTime = absence / 500
)

// serve executes a request for fullScript. Its arguments are those of the script file of the code.
func (x *transaction) serve(code string, keys lockKeys, args []string) (answer string, err error) {
	switch code {
	case "A":
		if args[1] != "x" {
			return "", errNeedsScripts("a lock that several may hold")
		}
		if parseInt(args[2]) > x.floor { // after a restart it would have to be known
			return "", errNeedsScripts("a TTL longer than GraceFloor")
		}
		return x.acquire(keys, acquisition{args[0], args[2], args[3], args[4] == "1", args[5]})
	case "R":
		return x.release(keys, args[0], args[1], parseInt(args[2]))
	case "w":
		return x.withdraw(keys, args[0], args[1], args[2])
	case "b":
		return x.breakHold(keys, args[0], args[1])
	case "c":
		return x.check(keys, args[0], args[1], args[2])
	case "L":
		return x.setLabel(keys, args[0], args[1], args[2])
	}
	return "", badAnswerf("there is no request %q", code)
}

func errNeedsScripts(what string) error {
	return &ReplyError{"the server refuses scripts, and without them snib can't work with " + what}
}

// A lockState is what a transaction has read of a lock.
type lockState struct {
	kind  string // type of the lock's key: none if it is free
	value string // of a string
	left  string // for how many ms the key lasts
	json  string // the record
	hold  request
	first string // in the queue
	now   int64
}

// read watches keys, and reads a lock and its record, which are among them, and then what more
// reads.
func (x *transaction) read(keys lockKeys, watched []string, more ...Call) (s lockState, replies []Reply, err error) {
	replies, err = x.do(append([]Call{
		{Command: "WATCH", Keys: watched},
		on(keys.lock(), "GET"), on(keys.lock(), "TYPE"), on(keys.lock(), "PTTL"), on(keys.record(), "GET"),
		on(keys.queue(), "ZRANGE", "0", "0"), {Command: "TIME"},
	}, more...)...)
	if err != nil {
		return s, nil, err
	}
	s = lockState{
		kind: text(replies[2]), value: text(replies[1]), left: text(replies[3]),
		json: text(replies[4]), first: text(replies[5]), now: parseTime(replies[6]),
	}
	if s.kind == "string" && len(replies[1].Lines) == 0 || s.left == "-2" && s.kind != "none" {
		return s, nil, errConflict // the key has come or gone between two commands
	}
	if s.kind == "none" {
		s.value = ""
	}
	if json.Unmarshal([]byte(s.json), &s.hold) != nil || s.hold.Owner == "" {
		s.json, s.hold = "", request{}
	}
	return s, replies[7:], nil
}

// isHold reports whether the owner has the hold with this token. A hold without a record is the
// only one of its owner.
func (s *lockState) isHold(owner, token string) bool {
	return s.kind == "string" && s.value == owner && (s.hold.Owner != owner || strconv.FormatUint(s.hold.Token, 10) == token)
}

// isForeign is that of script/acquire.lua.
func (s *lockState) isForeign() bool {
	return s.kind == "string" && !strings.HasPrefix(s.value, "snib:") && s.hold.Owner != s.value
}

// An acquisition has the arguments of script/acquire.lua.
type acquisition struct {
	owner, ttl, tokens string
	waits              bool
	rest               string
}

func (x *transaction) acquire(keys lockKeys, a acquisition) (answer string, err error) {
	s, replies, err := x.read(keys, keys[:], memoryCalls(x.metaKey)...)
	if err != nil {
		return "", err
	}
	m, err := parseMemory(replies)
	if err != nil {
		return "", err
	}
	if !m.isVouched() {
		return "", x.identify()
	}
	free := s.kind == "none"
	switch wait := x.grace(m, parseInt(a.ttl)); {
	case wait > 0 && !a.waits && !free && s.value != a.owner:
		return "h " + s.left, nil
	case wait > 0:
		return "e " + decimal(wait), nil
	case !free && s.kind != "string":
		return "k a " + s.kind, nil
	case strings.HasPrefix(s.value, "snib:slots:"):
		return "k a semaphore of " + strings.TrimPrefix(s.value, "snib:slots:"), nil
	case s.value == a.owner, free && (s.first == "" || s.first == a.owner):
		return x.grant(keys, s, m, a)
	case free:
		if err := x.serveQueue(keys); err != nil {
			return "", err
		}
		return "", errConflict // with what serveQueue has changed
	}
	if !a.waits {
		return "h " + s.left, nil
	}
	return x.enqueue(keys, s, a)
}

// grant gives a lock that is free, or the owner's, to the owner. The token is counted while the
// lock's keys are watched. If the transaction then succeeds, nobody else was granted the lock since
// the keys were read: the token is greater than those of all earlier holds, and all later ones are
// greater.
func (x *transaction) grant(keys lockKeys, s lockState, m serverMemory, a acquisition) (answer string, err error) {
	token, since, tokens := s.hold.Token, s.hold.Since, s.hold.Tokens
	if s.value != a.owner || s.hold.Owner != a.owner {
		if token, err = x.reserve(m, a.tokens); err != nil {
			return "", err
		}
		since, tokens = s.now, int(parseInt(a.tokens))
	}
	rest := strings.Replace(a.rest, `"tokens":`+a.tokens, `"tokens":`+strconv.Itoa(tokens), 1)
	record := fmt.Sprintf(`{"token":%d,"since":%d,`, token, since) + rest
	_, err = x.exec(
		on(keys.lock(), "SET", a.owner, "PX", a.ttl),
		on(keys.record(), "SET", record, "PX", recordTime(a.ttl)),
		on(keys.queue(), "ZREM", a.owner), on(keys.requests(), "HDEL", a.owner))
	if err != nil {
		return "", err
	}
	wanted := false
	if s.first != "" {
		var own request
		_ = json.Unmarshal([]byte(record), &own) // if it fails, the holder yields to its own process
		if wanted, err = x.othersWait(keys, own.Channel); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("g %d %d %s", token, tokens, flag(wanted)), nil
}

// reserve takes tokens and returns the first.
func (x *transaction) reserve(m serverMemory, tokens string) (first uint64, err error) {
	replies, err := x.do(on(x.metaKey, "HINCRBY", "t", tokens))
	if err != nil {
		return 0, err
	}
	last, n := parseInt(text(replies[0])), parseInt(tokens)
	switch {
	case last >= maxToken:
		return 0, &ReplyError{fmt.Sprintf("the last fencing token, field t of %s, is %d, above which none can be counted", x.metaKey, last)}
	case last-n < m.token: // somebody has deleted what the server remembers
		return 0, errConflict
	}
	return uint64(last - n + 1), nil
}

// recordTime returns how long the record of an exclusive hold lasts, in ms.
func recordTime(ttl string) string { return decimal(4*parseInt(ttl) + 60000) }

// enqueue puts a waiter into the queue unless it is there, and notes that it is alive. It tells the
// holder.
func (x *transaction) enqueue(keys lockKeys, s lockState, a acquisition) (answer string, err error) {
	replies, err := x.do(on(keys.queue(), "ZREVRANGE", "0", "0", "WITHSCORES"), on(keys.queue(), "ZSCORE", a.owner))
	if err != nil {
		return "", err
	}
	place := s.now
	if tail := replies[0].Lines; len(tail) == 2 {
		last, _ := strconv.ParseFloat(tail[1], 64)
		place = max(place, int64(last)+1)
	}
	if _, err = x.exec(
		on(keys.queue(), "ZADD", "NX", decimal(place), a.owner),
		on(keys.requests(), "HSET", a.owner, fmt.Sprintf("%016d{", s.now)+a.rest),
		on(keys.queue(), "PEXPIRE", decimal(queueTime)), on(keys.requests(), "PEXPIRE", decimal(queueTime)),
	); err != nil {
		return "", err
	}
	var own request
	if len(replies[1].Lines) == 0 && json.Unmarshal([]byte("{"+a.rest), &own) == nil && s.hold.Channel != own.Channel {
		x.hint(s.hold, "w")
	}
	switch {
	case s.first != "" && s.first != a.owner:
		return "q " + s.left + " 0", nil
	case s.isForeign():
		return "q " + s.left + " 2", nil
	}
	return "q " + s.left + " 1", nil
}

// hint publishes a hint to a holder, as script/hint.lua does. It ignores errors.
func (x *transaction) hint(to request, word string) {
	channel := to.Channel
	if to.Process != "" {
		channel = to.Process
	}
	if strings.HasPrefix(channel, "snib.c:") {
		_, _ = x.do(on(channel, "PUBLISH", to.ID+" "+word))
	}
}

// serveQueue grants a free lock to the first waiter that can be reached, as script/queue.lua does,
// and makes that waiter send its request again. It removes the waiters before it. A waiter whose
// request needs scripts has them, and is granted the lock when it asks.
func (x *transaction) serveQueue(keys lockKeys) error {
	for {
		s, replies, err := x.read(keys, keys[:], memoryCalls(x.metaKey)...)
		if err == errConflict { //nolint:errorlint // it is ours
			continue
		}
		if err != nil || s.first == "" {
			return err
		}
		m, err := parseMemory(replies)
		if err != nil {
			return err
		}
		entry, r, err := x.findWaiter(keys, s)
		switch {
		case err != nil:
			return err
		case entry == "":
			if _, err = x.do(on(keys.queue(), "ZREM", s.first), on(keys.requests(), "HDEL", s.first)); err != nil {
				return err
			}
			continue
		case s.kind == "none" && r.Mode == "x" && r.TTL <= x.floor && m.isVouched() && x.grace(m, r.TTL) <= 0:
			_, err = x.grant(keys, s, m, acquisition{owner: r.Owner, ttl: decimal(r.TTL), tokens: strconv.Itoa(r.Tokens), rest: entry[17:]})
		}
		if err != nil && err != errConflict { //nolint:errorlint // it is ours
			return err
		}
		if err == nil {
			_, _ = x.do(on(r.Channel, "PUBLISH", r.ID+" k"))
			return nil
		}
	}
}

// findWaiter returns the request of the first waiter, and the entry that has it. The entry is "" if
// the waiter is not alive, or its request can't be true.
func (x *transaction) findWaiter(keys lockKeys, s lockState) (entry string, r request, err error) {
	replies, err := x.do(on(keys.requests(), "HGET", s.first))
	if err != nil {
		return "", r, err
	}
	entry = text(replies[0])
	seen, r, ok := parseEntry(entry)
	if !ok || r.Owner != s.first || !strings.HasPrefix(r.Channel, "snib.c:") || seen+absence < s.now || seen > s.now+60_000_000 ||
		r.TTL < 1 || r.TTL > x.maxTTL || r.Tokens < 1 || r.Tokens > maxTokens {
		return "", r, nil
	}
	replies, err = x.do(Call{Command: "PUBSUB", Args: []string{"NUMSUB", r.Channel}})
	if err != nil || len(replies[0].Lines) != 2 || replies[0].Lines[1] == "0" {
		return "", r, err
	}
	return entry, r, nil
}

// othersWait is that of script/hold.lua.
func (x *transaction) othersWait(keys lockKeys, channel string) (bool, error) {
	replies, err := x.do(on(keys.queue(), "ZRANGE", "0", "31"))
	if err != nil || len(replies[0].Lines) == 0 {
		return false, err
	}
	owners := replies[0].Lines
	if replies, err = x.do(on(keys.requests(), "HMGET", owners...)); err != nil {
		return false, err
	}
	return len(owners) == 32 || slices.ContainsFunc(replies[0].Lines, func(entry string) bool {
		_, r, ok := parseEntry(entry)
		return ok && r.Channel != channel
	}), nil
}

// release is that of script/release.lua. The lock is free for a moment before the next waiter has
// it.
func (x *transaction) release(keys lockKeys, owner, token string, minHold int64) (answer string, err error) {
	s, _, err := x.read(keys, keys[:3])
	if err != nil {
		return "", err
	}
	answer = "o"
	ms := ceilMillis(s.hold.Since-s.now) + minHold
	switch {
	case !s.isHold(owner, token):
		answer = "l" // an earlier try may have freed the lock without serving anybody
	case minHold > 0 && s.hold.Owner == owner && ms > 0:
		_, err = x.exec(on(keys.lock(), "SET", "snib:kept", "PX", decimal(ms)), on(keys.record(), "PEXPIRE", decimal(ms)))
	default:
		_, err = x.exec(on(keys.lock(), "DEL"), on(keys.record(), "DEL"))
	}
	if err != nil || s.first == "" {
		return answer, err
	}
	return answer, x.serveQueue(keys)
}

// withdraw is that of script/withdraw.lua.
func (x *transaction) withdraw(keys lockKeys, owner, process, id string) (answer string, err error) {
	s, replies, err := x.read(keys, keys[:], on(keys.requests(), "HGET", owner))
	if err != nil {
		return "", err
	}
	isGivenUp := func(r request) bool {
		return r.ID == id && (r.Process == process || r.Process == "" && r.Channel == process)
	}
	var calls []Call
	if _, r, ok := parseEntry(text(replies[0])); ok && isGivenUp(r) {
		calls = append(calls, on(keys.queue(), "ZREM", owner), on(keys.requests(), "HDEL", owner))
	}
	if s.kind == "string" && s.value == owner && (s.hold.Owner != owner || isGivenUp(s.hold)) {
		calls = append(calls, on(keys.lock(), "DEL"), on(keys.record(), "DEL"))
	}
	if len(calls) > 0 {
		if _, err := x.exec(calls...); err != nil {
			return "", err
		}
	}
	return "o", x.serveQueue(keys)
}

// check is that of script/check.lua. Each hold has a record.
func (x *transaction) check(keys lockKeys, owner, token, channel string) (answer string, err error) {
	s, _, err := x.read(keys, keys[:2])
	if err != nil {
		return "", err
	}
	if !s.isHold(owner, token) {
		return "l", nil
	}
	if others, err := x.othersWait(keys, channel); err != nil || !others {
		return "o", err
	}
	return "w", nil
}

// breakHold is that of script/break.lua, for exclusive holds.
func (x *transaction) breakHold(keys lockKeys, owner, token string) (answer string, err error) {
	s, _, err := x.read(keys, keys[:2])
	if err != nil {
		return "", err
	}
	switch own := s.hold.Owner == owner && (s.value == owner || s.value == "snib:kept"); {
	case s.kind != "none" && s.kind != "string", s.value == "snib:shared", strings.HasPrefix(s.value, "snib:slots:"):
		return "", errNeedsScripts("a hold of that kind")
	case own && strconv.FormatUint(s.hold.Token, 10) != token, !own && (s.value != owner || s.kind == "none" || token != "0"):
		answer = "l"
	default:
		if _, err = x.exec(on(keys.lock(), "DEL"), on(keys.record(), "DEL")); err != nil {
			return "", err
		}
		answer = "o"
		x.hint(s.hold, "b")
	}
	return answer, x.serveQueue(keys)
}

// setLabel is that of script/label.lua.
func (x *transaction) setLabel(keys lockKeys, owner, token, label string) (answer string, err error) {
	s, _, err := x.read(keys, keys[:2])
	switch {
	case err != nil:
		return "", err
	case !s.isHold(owner, token):
		return "l", nil
	case s.hold.Owner != owner:
		return "o", nil // another client has deleted the record
	}
	head, _, found := strings.Cut(s.json, `,"label":"`)
	if !found {
		head = strings.TrimSuffix(head, "}")
	}
	_, err = x.exec(on(keys.record(), "SET", head+`,"label":`+label+"}", "KEEPTTL"))
	return "o", err
}

// A renewalOf is one lease in a call of extendScript, or of renewScript.
type renewalOf struct{ lock, record, owner, token, ttl string }

// renewalsIn returns the leases in a call of extendScript, which has no records and tokens, or of
// renewScript.
func renewalsIn(call Call) (all []renewalOf) {
	if call.Script == extendScript {
		for i, key := range call.Keys {
			all = append(all, renewalOf{lock: key, owner: call.Args[1+i], ttl: call.Args[0]})
		}
		return all
	}
	for i := 2; i < len(call.Keys); i += 2 {
		args := call.Args[2*i-2:]
		all = append(all, renewalOf{call.Keys[i], call.Keys[i+1], args[1], args[2], args[3]})
	}
	return all
}

// renew is script/renew.lua and script/extend.lua, for exclusive leases.
func (x *transaction) renew(due []renewalOf) (answer string, err error) {
	watch, reads := Call{Command: "WATCH"}, []Call{}
	for _, r := range due {
		watch.Keys = append(watch.Keys, r.lock)
		reads = append(reads, on(r.lock, "GET"))
		if r.record != "" {
			watch.Keys = append(watch.Keys, r.record)
			reads = append(reads, on(r.record, "GET"))
		}
	}
	replies, err := x.do(append([]Call{watch}, reads...)...)
	if err != nil {
		return "", err
	}
	replies = replies[1:]
	answers, writes, indexes := make([]byte, len(due)), []Call{}, []int{} // the index of the lease of each write, or -1
	for i, r := range due {
		held := text(replies[0]) == r.owner
		replies = replies[1:]
		if r.record != "" {
			record := text(replies[0])
			held = held && (record == "" || strings.HasPrefix(record, `{"token":`+r.token+`,`))
			replies = replies[1:]
		}
		if answers[i] = '0'; held {
			writes, indexes = append(writes, on(r.lock, "PEXPIRE", r.ttl)), append(indexes, i)
		}
		if held && r.record != "" {
			writes, indexes = append(writes, on(r.record, "PEXPIRE", recordTime(r.ttl))), append(indexes, -1)
		}
	}
	if len(writes) == 0 {
		return string(answers), nil
	}
	results, err := x.exec(writes...)
	for n, result := range results {
		if i := indexes[n]; i >= 0 && result == "1" {
			answers[i] = '1'
		}
	}
	return string(answers), err
}

// snapshots is script/snapshot.lua, without the fields of hashes. It may read the parts of a lock
// at different moments.
func (c *scriptlessConn) snapshots(ctx context.Context, keys []string) Reply {
	const perLock = 8
	var calls []Call
	for k := range slices.Chunk(keys, 4) {
		calls = append(calls, on(k[0], "TYPE"), on(k[0], "PTTL"), on(k[0], "GET"), on(k[1], "GET"), on(k[1], "HVALS"),
			on(k[2], "ZRANGE", "0", "-1", "WITHSCORES"), on(k[3], "HGETALL"), Call{Command: "TIME"})
	}
	replies := c.Conn.Eval(ctx, calls...)
	var lines []string
	for r := range slices.Chunk(replies, perLock) {
		for _, one := range r {
			if refusal := (*ReplyError)(nil); one.Err != nil && !(errors.As(one.Err, &refusal) && isWrongType(refusal.Text)) {
				return Reply{Err: one.Err}
			}
		}
		left, _ := strconv.ParseFloat(text(r[1]), 64)
		seen := snapshot{
			Type: text(r[0]), Left: left, Now: decimal(parseTime(r[7])), Value: rediskit.Bytes(text(r[2])),
			Recorded: len(r[3].Lines)+len(r[4].Lines) > 0, Record: text(r[3]), Records: r[4].Lines,
		}
		line, requests := r[5].Lines, r[6].Lines
		for i := 0; i+1 < len(line); i += 2 {
			if j := slices.Index(requests, line[i]); j >= 0 && j%2 == 0 {
				seen.Line, seen.Requests = append(seen.Line, line[i+1]), append(seen.Requests, requests[j+1])
			}
		}
		encoded, err := json.Marshal(seen)
		if err != nil {
			return Reply{Err: err}
		}
		lines = append(lines, string(encoded))
	}
	return Reply{Lines: lines}
}

// isWrongType reports whether an error reply says that a key has another type.
func isWrongType(text string) bool { return strings.HasPrefix(text, "WRONGTYPE ") }
