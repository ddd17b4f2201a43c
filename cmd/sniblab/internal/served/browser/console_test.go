package browser

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/serve/access"
)

// TestLocks follows locks as they are taken and released, searches and filters them, and goes to
// one by keyboard.
func TestLocks(t *testing.T) {
	s := startService(t, nil, nil)
	p := open(t, s.url(), 1440, 900)
	p.isLive()
	p.shows("main", "Nobody holds a lock, and nobody waits for one.")

	web, batch := s.client("web"), s.client("batch")
	orders := web.hold("shop/orders")
	batch.hold("shop/stock")
	nightly := batch.hold("nightly")
	p.shows(".count", "3 locks")
	p.shows("#locks", "shop/")
	p.shows("#locks", "job of batch")
	granted := batch.queue("shop/orders")
	p.shows(".count", "1 waited for")

	const top = "document.querySelector('#locks [role=treeitem] .name').innerText"
	p.await(top + ".endsWith('shop/')")
	p.press("button", "Waiting")
	p.await(top + ".endsWith('shop/orders')")
	p.press("button", "Lock")

	p.press("button", "Waited for")
	p.shows(".count", "1 lock,")
	p.press("button", "All")
	p.fill("#search", "STOCK")
	p.shows(".count", "1 lock,")
	p.clear("#search")
	p.shows(".count", "3 locks")

	free(t, orders)
	free(t, <-granted)
	p.shows(".count", "2 locks, 0 waited for")
	p.await("![...document.querySelectorAll('#locks .name')].some((n) => n.innerText.endsWith('/'))") // one lock is no group

	p.eval("document.querySelector('#locks').focus()")
	p.keys(kb.End, kb.Enter)
	p.shows("h1", "nightly")
	p.await("document.activeElement === document.querySelector('h1')")
	p.await("document.title === 'nightly · ' + location.host + ' · snib'")

	// Once the lock was asked for, only events tell of it.
	p.await("performance.getEntriesByType('resource').some((e) => e.name.includes('v1/lock?'))")
	p.eval("{ const all = fetch; fetch = (url, ...rest) => url.includes('v1/lock?') ? Promise.reject('') : all(url, ...rest) }")
	free(t, nightly)
	p.shows("main", "Nobody holds this lock.")
}

// TestBreak ends a hold by force, by keyboard. It needs the name of the lock and a reason.
func TestBreak(t *testing.T) {
	s := startService(t, nil, nil)
	first, second := s.client("first"), s.client("second")
	lost := first.hold("db/migrate")
	granted := second.queue("db/migrate")
	s.client("third").queue("db/migrate")
	p := open(t, s.url()+"#/lock/db%2Fmigrate", 1440, 900)
	p.shows("h1", "db/migrate")
	p.shows(".card", "first:42")
	p.await("[...document.querySelectorAll('tbody tr')].map((r) => r.innerText.split('\\t')[1]).join() === 'second:42,third:42'")
	p.shows(".timeline", "job of first")

	p.askToBreak("db/migrate")
	p.keys(kb.Escape)
	p.await("!document.querySelector('dialog')")

	p.askToBreak("db/migrat")
	p.await("document.querySelector('dialog button[type=submit]').disabled")
	p.fill("#break-name", "e")
	p.await("/^snib release db.migrate --force --reason 'it hangs'$/.test(document.querySelector('#break-command').innerText)")
	p.eval("document.querySelector('#break-reason').focus()")
	p.keys(kb.Enter)
	p.shows("dialog", "The hold has ended")
	p.await("document.activeElement.innerText === 'Close'")
	p.keys(kb.Enter)
	p.await("!document.querySelector('dialog')")

	<-granted
	if err := lost.Release(t.Context()); err == nil {
		t.Error("the hold that was broken could still be released")
	}
	p.shows(".card", "second:42")
	p.shows(".timeline", "granted")
	p.shows(".timeline", "ended")
}

// TestBreakSeen does not break a hold that came after the one that was seen.
func TestBreakSeen(t *testing.T) {
	s := startService(t, nil, nil)
	first := s.client("first").hold("a")
	p := open(t, s.url()+"#/lock/a", 1440, 900, "410")
	p.askToBreak("a")
	free(t, first)
	second := s.client("second").hold("a")
	p.press("dialog button", "Break")
	p.shows("dialog [role=alert]", "Nothing was ended")
	free(t, second)
}

// TestHoldersAndWaits shows what each process holds and waits for, and a cycle.
func TestHoldersAndWaits(t *testing.T) {
	s := startService(t, nil, nil)
	a, b := s.client("alpha"), s.client("beta")
	one, two := a.hold("one"), b.hold("two")
	forTwo, forOne := a.queue("two"), b.queue("one")
	p := open(t, s.url(), 1440, 900)
	p.view("Waits")
	p.shows(".cycle", "beta:42, alpha:42 wait for each other")
	p.view("Holders")
	p.shows("main", "holds 1, waits for 1")
	p.press("a", "Only this process")
	p.shows("h1", "alpha:42")
	p.await("document.querySelectorAll('tbody tr').length === 2")

	free(t, one)
	free(t, <-forOne)
	p.view("Waits")
	p.await("!document.querySelector('.cycle')")
	again := b.queue("two") // another thread of the same process
	p.shows("main", "beta:42")
	if p.eval("!!document.querySelector('.cycle')") != false {
		t.Error("two threads that want one lock are shown as a cycle")
	}
	defer func() { free(t, <-again) }()
	free(t, two)
	free(t, <-forTwo)
	p.shows("main", "Nobody waits for a lock that somebody holds.")
}

// TestReservations reserves a lock, takes the reservation over, and hands the lock back.
func TestReservations(t *testing.T) {
	s := startService(t, nil, nil)
	p := open(t, s.url(), 1440, 900, "423")
	p.view("Reservations")
	p.shows("main", "No lock is reserved.")
	p.fill("#reserve-name", "db/main")
	p.fill("#reserve-note", "new disks")
	p.fill("#reserve-hours", "2")
	p.keys(kb.Enter)
	p.shows("main [role=status]", "db/main is reserved")
	p.shows("dl", "new disks")
	p.shows("dl", "in 1 h 5") // and 9 min, or less on a slow machine
	granted := s.client("worker").queue("db/main")
	p.shows("dl", "Waiting\n1")

	p.fill("#reserve-name", "db/main")
	p.fill("#reserve-note", "my own reason")
	p.keys(kb.Enter)
	p.shows("main [role=alert]", "held")

	p.view("Waits")
	p.shows("main", "a reservation")
	p.view("Locks")
	p.press("button", "Reserved")
	p.shows(".count", "1 lock,")
	p.view("Reservations")
	p.press("button", "Take over…")
	p.fill(".reserved-text", "old disks")
	p.keys(kb.Enter)
	p.shows("dl", "old disks")
	checkLooks(p, "Reservations")
	p.picture("console-reservations.png")
	p.press("button", "Hand back…")
	p.fill(".reserved-text", "it is done")
	p.keys(kb.Enter)
	p.shows("main", "No lock is reserved.")
	free(t, <-granted)
}

// TestStore shows what the store promises.
func TestStore(t *testing.T) {
	s := startService(t, nil, nil)
	p := open(t, s.url(), 1440, 900)
	p.view("Store")
	p.shows("dl", "memory")
	p.shows("dl", "Replica version")
}

// TestRights logs in with a wrong token, with one that may read only, and with an administrator's.
// The audit log shows what happened.
func TestRights(t *testing.T) {
	d := memlock.New()
	token, line := access.NewToken()
	adminToken, adminLine := access.NewToken()
	policy := filepath.Join(t.TempDir(), "policy.toml")
	text := "[token.reader]\n" + line + "\nverbs = [\"read\"]\nprefixes = [\"team/\"]\n" +
		"[token.ops]\n" + adminLine + "\nverbs = [\"read\", \"break\", \"admin\"]\nprefixes = [\"\"]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rules, err := access.Load(policy, nil, access.NewAuditLog(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	s := startService(t, d, rules)
	c := client{t: t, d: d, holder: driver.Holder{Host: "web", PID: 42}}
	c.hold("team/a")
	c.hold("others/b")

	p := open(t, s.url(), 1440, 900, "401", "403")
	p.fill("#token", "wrong")
	p.keys(kb.Enter)
	p.shows("[role=alert]", "token")
	p.clear("#token")
	p.fill("#token", token)
	p.keys(kb.Enter)
	p.shows(".count", "1 lock,")
	if strings.Contains(p.eval("document.body.innerText").(string), "others") {
		t.Error("the page shows a lock that the token may not see")
	}

	p.eval("location.hash = '#/lock/team%2Fa'")
	p.askToBreak("team/a")
	p.press("dialog button", "Break")
	p.shows("dialog [role=alert]", "You may not break this lock")
	p.press("dialog button", "Cancel")
	p.view("Audit")
	p.shows("main [role=alert]", "admin")
	p.press("button", "Log out")

	p.fill("#token", adminToken)
	p.keys(kb.Enter)
	p.shows("main", "token.reader")
	p.shows("tbody tr", "refused")
	checkLooks(p, "Audit")
	p.eval("location.hash = '#/lock/team%2Fa'")
	p.askToBreak("team/a")
	p.press("dialog button", "Break")
	p.press("dialog button", "Close")
	p.view("Audit")
	p.shows("tbody tr", "break, done")
	p.shows("tbody tr", "it hangs")
	p.picture("console-audit.png")
	p.press("button", "Log out")
	p.await("document.querySelector('#token')")
	if left := p.eval("sessionStorage.length + localStorage.length + document.cookie.length"); left != 0.0 {
		t.Errorf("after the log-out, the browser keeps %v things", left)
	}
}

// TestOutages kills the service, and starts it again; and hangs the store.
func TestOutages(t *testing.T) {
	node := redistest.Single(t).Used()
	d, err := redislock.Open(t.Context(), rueidis.ClientOption{InitAddress: []string{node.Addr()}},
		redislock.AllowSplitBrain())
	if err != nil {
		t.Fatal(err)
	}
	s := startService(t, d, nil)
	c := s.client("web")
	first := c.hold("first")
	p := open(t, s.url(), 1440, 900, "Failed to load", "net::ERR")
	p.shows(".count", "1 lock,")

	s.stop()
	p.shows("#banner", "No connection")
	p.shows("#banner", "What you see is")
	p.shows("#locks", "first")
	s.start()
	p.isLive()
	free(t, first)
	c.hold("second")
	p.shows("#locks", "second")
	p.shows(".count", "1 lock,")

	p.view("Reservations")
	p.await("document.querySelector('#reserve-hours').required") // Redis keeps no lock for longer than an hour
	p.shows("main", "No lock is reserved.")
	p.view("Locks")
	node.Hang()
	p.shows("#banner", "The store is unavailable")
	p.shows("#locks", "second")
	late := open(t, s.url(), 1440, 900)
	late.shows("#banner", "The store is unavailable")
	late.shows("#locks", "second") // which the service saw last, before it gave the list up
	if age := late.eval("document.querySelector('#banner').innerText").(string); regexp.MustCompile(`is [0-3] s old`).MatchString(age) {
		t.Errorf("a page that was opened in the outage says %q", age)
	}
	late = open(t, startService(t, d, nil).url(), 1440, 900) // this service has seen nothing yet
	late.shows("#banner", "The store is unavailable")
	for _, view := range []string{"lock/second", "lock/other", "waits", "holders", "reservations", "locks"} {
		late.eval("location.hash = '#/" + view + "'")
		late.shows("main", "Nothing was seen yet, so the page does not know")
		if text := late.eval("document.querySelector('main').innerText").(string); regexp.MustCompile("Nobody|No lock|0 locks").MatchString(text) {
			t.Errorf("%s, before anything was seen: %q", view, text)
		}
	}
	for _, view := range []string{"lock/other", "waits", "reservations"} {
		p.eval("location.hash = '#/" + view + "'")
		p.shows("main", "What is so now is not known")
	}
	node.Resume()
	p.shows("main", "No lock is reserved.")
	p.isLive()
}

// TestHostileNames shows names, hosts and labels that try to be more than text.
func TestHostileNames(t *testing.T) {
	s := startService(t, nil, nil)
	evil := []string{
		`<img src=x onerror=alert(1)>`, `"><script>alert(1)</script>`, `javascript:alert(1)`, `a/../../b`, `%2e%2e%2f`,
		"\u202egnp.exe", "line\nbreak", "-rf", `$(reboot) ' "`, strings.Repeat("long", 128),
	}
	p := open(t, s.url(), 390, 844)
	for i, name := range evil {
		c := s.client(name)
		c.holder.Label = name
		if i == 0 {
			c.hold("victim")
		}
		c.hold(name)
		p.eval("location.hash = '#/lock/' + encodeURIComponent(" + quote(name) + ")")
		p.await("document.querySelector('.card')")
		if shown := p.eval("document.querySelector('h1').innerText").(string); strings.ContainsAny(shown, "\u202e\n") {
			t.Errorf("the page shows the name %q as it is", shown)
		}
		p.press("button", "Break…")
		p.press("dialog button", "Cancel")
		noOverflow(p, name)
	}
	for _, view := range []string{"Locks", "Holders", "Waits"} {
		p.view(view)
		noOverflow(p, view)
	}
	p.await("!document.querySelector('main img, main script')")
}

// noOverflow reports a page that is wider than its window.
func noOverflow(p *page, what string) {
	p.t.Helper()
	if p.eval("document.documentElement.scrollWidth > innerWidth") == true {
		p.t.Errorf("%s: the page is wider than its window, by %v px", what, p.eval("document.documentElement.scrollWidth - innerWidth"))
	}
}

// TestManyLocks shows 10,000 locks. The page has only the rows that can be seen.
func TestManyLocks(t *testing.T) {
	d := memlock.New()
	s := startService(t, d, nil)
	c := client{t: t, d: d, holder: driver.Holder{Host: "web", PID: 42}}
	for i := range 10_000 {
		c.hold(fmt.Sprintf("tenant-%02d/job-%04d", i%100, i))
	}
	p := open(t, s.url(), 1440, 900)
	p.shows(".count", "10,000 locks")
	p.fill("#search", "job")
	p.await("document.querySelector('#locks .tall').offsetHeight > 300_000")
	rows := p.eval("document.querySelectorAll('.row').length").(float64)
	if rows < 10 || rows > 100 {
		t.Errorf("the page has %v rows, want those that can be seen", rows)
	}
	p.eval("document.querySelector('#locks').focus()")
	p.keys(kb.End)
	p.shows("#locks", "job-9999")
	p.keys(kb.Enter)
	p.shows("h1", "tenant-99/job-9999")
	p.view("Holders")
	p.shows("main", "holds 10000")
}
