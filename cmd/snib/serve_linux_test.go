package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/promtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/remotelock"
)

// startService starts snib serve for a store, and returns its process and its URL.
func startService(t *testing.T, store string, flags ...string) (*proc, string) {
	t.Helper()
	return startLogged(t, filepath.Join(t.TempDir(), "log"), store, flags...)
}

// startLogged is startService with a file for what the service prints.
func startLogged(t *testing.T, log, store string, flags ...string) (*proc, string) {
	t.Helper()
	p := start(t, append([]string{"sh", "-c", `exec snib serve --listen 127.0.0.1:0 --url "$@" 2>"$0"`, log, store}, flags...)...)
	awaitText(t, log, "serving http://")
	return p, regexp.MustCompile(`http://[0-9.:]+`).FindString(read(log))
}

// TestServedScripts runs the common scripts on lock services, each with a store of its own, and the
// script about them.
func TestServedScripts(t *testing.T) {
	t.Parallel()
	for _, name := range commonScripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(kindScripts, name) {
				livetest.Long(t)
			}
			_, url := startService(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
			runOnStore(t, []string{name}, url)
		})
	}
	t.Run("serve", func(t *testing.T) {
		_, url := startService(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "serve", "serve.txtar")}},
			"SNIB_URL="+url, "ADDR="+strings.TrimPrefix(url, "http://"))
	})
}

// TestServeDrains has snib serve end with INT. A request that waits is answered, and the hold
// stays in the store.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	p, url := startService(t, store)
	if status, body := post(t, url, `{"name":"deploy"}`); status != http.StatusOK {
		t.Fatalf("acquire = %d %s", status, body)
	}
	waits := make(chan string, 1)
	go func() {
		status, body := post(t, url, `{"name":"deploy","id":"next----------------","wait_ms":30000,"brief":true}`)
		waits <- fmt.Sprint(status, " ", body)
	}()
	await(t, "waiter", func() bool {
		out, _ := snib(t, "show", "deploy", "--url", url)
		return strings.Contains(out, "waiting")
	})
	p.signal(syscall.SIGINT)
	if got := <-waits; !strings.HasPrefix(got, "202 ") {
		t.Errorf("the request that waited was answered %s, want 202", got)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("snib serve ended with %d", code)
	}
	if out, code := snib(t, "run", "--url", store, "--try", "deploy", "--", "true"); code != 75 {
		t.Errorf("after the end of the service, run --try = %d, %s; want 75: the hold stays", code, out)
	}
}

// TestBackground checks that what ignores INT when it starts, as all that a script starts with &,
// goes on when the user interrupts the script.
func TestBackground(t *testing.T) {
	for _, command := range []string{"serve", "export"} {
		p := start(t, "sh", "-c", `trap "" INT; exec snib "$0" memory: --listen 127.0.0.1:0`, command)
		p.awaitOutput("serving http://")
		status := read(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
		if !regexp.MustCompile(`SigIgn:\s+[0-9a-f]*[2367abef]\n`).MatchString(status) {
			t.Errorf("snib %s does not ignore INT: %s", command, status)
		}
	}
}

// TestServeHangUp sends HUP, which asks for a reload, to services that start or end. They go on.
func TestServeHangUp(t *testing.T) {
	t.Parallel()
	store, err := net.Listen("tcp", "127.0.0.1:0") // it does not answer
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "snib", "serve", "--listen", "127.0.0.1:0", "--url", "redis://"+store.Addr().String())
	conn, err := store.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	if err := errors.Join(store.Close(), conn.Close()); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 69 {
		t.Errorf("a service that starts ends with %v after HUP, want exit status 69: its store has gone", p.ProcessState)
	}

	log := filepath.Join(t.TempDir(), "log")
	p, url := startLogged(t, log, "memory:")
	conn, err = net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	talk := func(send string) {
		t.Helper()
		_, err := io.WriteString(conn, send)
		if err == nil {
			_, err = conn.Read(make([]byte, 1<<10))
		}
		if err != nil {
			t.Error(err)
		}
	}
	talk("POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" +
		"Expect: 100-continue\r\n\r\n") // until the service waits for the body
	p.signal(syscall.SIGTERM)
	awaitText(t, log, "ending")
	p.signal(syscall.SIGHUP)
	talk("{}")
	if code := p.wait(); code != 0 {
		t.Errorf("a service that ends, ends with %v after HUP, want exit status 0", p.ProcessState)
	}
}

// TestServeOtherStore puts services behind one address. A client goes on with another replica on
// its store, and gets nothing from a service with another store: not the lock that it has, and not
// the loss of its hold.
func TestServeOtherStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := map[string]string{}
	for name, store := range map[string]string{
		"first": "sqlite:" + dir + "/a.db", "replica": "sqlite:" + dir + "/a.db",
		"file":   "sqlite:" + dir + "/b.db",
		"memory": "memory:?failover-grace=off", "forgetful": "memory:?failover-grace=off",
	} {
		_, at := startService(t, store)
		url[name] = strings.TrimPrefix(at, "http://")
	}
	for _, tt := range []struct {
		first, then string
		isSame      bool
	}{
		{"first", "replica", true}, {"first", "file", false},
		{"memory", "memory", true}, {"memory", "forgetful", false},
	} {
		t.Run(tt.first+" "+tt.then, func(t *testing.T) {
			proxy := livetest.NewProxy(t, url[tt.first])
			conf := remotelock.Config{Servers: []string{"http://" + proxy.Addr()}}
			d, err := remotelock.Open(t.Context(), conf)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			name := tt.first + tt.then
			held := driver.Request{Name: name, ID: rand.Text(), TTL: time.Hour, NoWait: true}
			lease, err := d.Acquire(t.Context(), held)
			if err != nil {
				t.Fatal(err)
			}
			proxy.Redirect(url[tt.then])
			proxy.Cut()
			want := driver.ErrHeld
			if !tt.isSame {
				want = driver.ErrUnavailable
			}
			again := held
			again.ID = rand.Text()
			// A connection may notice late that it was cut.
			livetest.Await(t, "second Acquire", func() error {
				if _, err := d.Acquire(t.Context(), again); !errors.Is(err, want) {
					return fmt.Errorf("it ended with %w, want %w", err, want)
				}
				return nil
			})
			livetest.Await(t, "renewal", func() error {
				err := d.Renew(t.Context(), []driver.Lease{lease})[0].Err
				if tt.isSame != (err == nil) || errors.Is(err, driver.ErrLost) {
					return fmt.Errorf("it ended with %w, want an error unless the store is the same, and no loss", err)
				}
				return nil
			})
			proxy.Redirect(url[tt.first])
			proxy.Cut()
			livetest.Await(t, "release at the first service", func() error { return lease.Release(t.Context()) })
		})
	}
}

// post posts a request to acquire a lock.
func post(t *testing.T, url, body string) (status int, answer string) {
	return postTo(t, url+"/v1/acquire", body)
}

func postTo(t *testing.T, url, body string) (status int, answer string) {
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// TestServeMetrics checks the metrics of a service by Prometheus's own checker, and that they have
// what docs/serve.md says. A path that a client makes up makes no series.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	_, url := startService(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
	for _, body := range []string{`{"name":"deploy"}`, `{"name":"deploy","id":"next----------------"}`} {
		post(t, url, body)
	}
	for range 2 {
		if resp, err := http.Get(url + "/made/up"); err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
	}
	text := scrape(url + "/metrics")
	for _, want := range []string{
		`distributed_lock_service_requests_total{code="200",path="/v1/acquire"} 1`,
		`distributed_lock_service_requests_total{code="423",path="/v1/acquire"} 1`,
		`distributed_lock_service_requests_total{code="404",path="other"} 2`,
		`distributed_lock_service_request_seconds_count{path="/v1/acquire"} 2`,
		"distributed_lock_service_waits 0", "distributed_lock_service_places 0", "distributed_lock_service_streams 0",
		`distributed_lock_service_store_up{backend="sqlite"} 1`, `distributed_lock_service_grace_seconds{backend="sqlite"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics has no line %q:\n%s", want, text)
		}
	}
	if out, err := promtest.Tool(t, text, "check", "metrics"); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// scrape returns what is at url, or the error.
func scrape(url string) string {
	answer, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestReservations reserves a lock through a service. It is no leak, and people see why it is
// held, through the service and in its store.
func TestReservations(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	_, url := startService(t, store)
	if status, body := post(t, url, `{"name":"db","reserve":true,"label":"new disks"}`); status != http.StatusOK {
		t.Fatalf("reserve = %d %s", status, body)
	}
	for _, u := range []string{store, url} {
		if out, code := snib(t, "leaks", "--url", u); code != 0 {
			t.Errorf("leaks --url %s = %d, want no leak:\n%s", u, code, out)
		}
		if out, _ := snib(t, "show", "db", "--url", u); !strings.Contains(out, "reserved: new disks") {
			t.Errorf("show --url %s does not say why the lock is held:\n%s", u, out)
		}
	}
}

// TestServedChecks has a service examine its store, and search it for leaks.
func TestServedChecks(t *testing.T) {
	t.Parallel()
	node := redistest.Single(t)
	node.Used()
	_, url := startService(t, "redis://"+node.Addr())
	if status, body := post(t, url, `{"name":"for ever","ttl_ms":60000}`); status != http.StatusOK {
		t.Fatalf("acquire = %d %s", status, body)
	}
	node.Must("PEXPIRE", "for ever", "9000000000000000")
	for path, want := range map[string]string{
		"/v1/leaks":  `{"leaks":[{"kind":"distant","name":"for ever","problem":"`,
		"/v1/doctor": `{"check":"lock","verdict":"ok","value":"taken, renewed and freed twice`,
	} {
		if text := scrape(url + path); !strings.Contains(text, want) {
			t.Errorf("GET %s = %s, want %s", path, text, want)
		}
	}
}

// runServed runs the shell blocks of a page's sections, as one script: it stays in one shell, which
// has the service and its waiters in the background. The port is another one, so that two runs of
// the test don't disturb each other. It returns the folder and the output of the script.
func runServed(t *testing.T, page string, sections ...string) (dir, out string) {
	t.Helper()
	livetest.Binary(t, "curl", "curl")
	dir = newStore(t)
	addr := fmt.Sprint("127.0.0.1:", livetest.FreePort(t))
	blocks := shellBlocks(t, page)
	var script string
	for _, section := range sections {
		script += strings.Join(blocks[section], "\n")
	}
	const start = "& service=$!"
	if !strings.Contains(script, start) {
		t.Fatalf("%s starts no service by %q", page, start)
	}
	script = strings.Replace(script, start, "--listen "+addr+" & service=$!; trap 'kill $service' EXIT", 1)
	return dir, shell(t, dir, nil, strings.ReplaceAll(script, "127.0.0.1:7420", addr))
}

// TestServeAccessPage runs the first steps with a policy.
func TestServeAccessPage(t *testing.T) {
	t.Parallel()
	dir, out := runServed(t, "serve-access.md", "First steps")
	if strings.Count(out, "deploy/shop ") != 1 || !strings.Contains(out, `"token":`) {
		t.Errorf("the walk takes or lists no lock:\n%s", out)
	}
	if token := strings.TrimSpace(read(filepath.Join(dir, "deploy.token"))); token == "" || strings.Contains(out, token) {
		t.Errorf("the walk makes no token, or shows it:\n%s", out)
	}
}

// TestServePage runs the shell blocks of the page.
func TestServePage(t *testing.T) {
	t.Parallel()
	dir, out := runServed(t, "serve.md", "First steps", "Fencing for scripts")
	for _, want := range []string{"the lock is free\n", `serve.md#stale","title":"stale fencing token"`, "Monday is too late\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the walk lacks %q:\n%s", want, out)
		}
	}
	var hold struct {
		ID    string
		Token uint64
	}
	if err := json.Unmarshal([]byte(read(filepath.Join(dir, "hold.json"))), &hold); err != nil || hold.Token == 0 || hold.ID == "" {
		t.Errorf("the hold is %+v, %v", hold, err)
	}
	refused := read(filepath.Join(dir, "refused.json"))
	if strings.Contains(refused, hold.ID) || !strings.Contains(refused, `"label":"release 7"`) {
		t.Errorf("the refusal shows the id, or not the label: %s", refused)
	}
	if _, err := os.Stat(filepath.Join(dir, "ready.txt")); err != nil {
		t.Error(err)
	}
}

// TestServeTells checks what an operator reads about a service without a policy: that a store in
// memory forgets, and who broke which hold and why.
func TestServeTells(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	_, graceful := startLogged(t, file+"0", "memory:")
	if ready := scrape(graceful + "/readyz"); !strings.Contains(ready, `"grace"`) { // before somebody is refused
		t.Errorf("readyz at the start = %s, want that it is a grace period", ready)
	}
	status, body := post(t, graceful, `{"name":"deploy"}`)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "restarted") {
		t.Errorf("acquire at the start = %d %s, want 503 that tells of a restart", status, body)
	}
	if log := read(file + "0"); !strings.Contains(log, "grants nothing for 30s") {
		t.Errorf("the log does not tell of the grace period: %s", log)
	}
	p, url := startLogged(t, file, "memory:?failover-grace=off")
	status, body = post(t, url, `{"name":"deploy"}`)
	var g struct{ Token json.Number }
	if err := json.Unmarshal([]byte(body), &g); status != http.StatusOK || err != nil {
		t.Fatalf("acquire = %d %s, %v", status, body, err)
	}
	resp, err := http.Post(url+"/v1/break", "application/json",
		strings.NewReader(`{"name":"deploy","token":`+g.Token.String()+`,"reason":"test at 3 am"}`))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("break = %+v, %v", resp, err)
	}
	p.signal(syscall.SIGINT)
	p.wait()
	log := read(file)
	for _, want := range []string{"a restart forgets", `"outcome":"done"`, `"reason":"test at 3 am"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q: %s", want, log)
		}
	}
}

// TestServeSocket serves on a Unix socket, which only its user can open. A socket that was left
// there is replaced; one on which somebody listens, and any other file, is not.
func TestServeSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, store := filepath.Join(dir, "snib.sock"), "sqlite:"+filepath.Join(dir, "locks.db")
	serve := func() *proc {
		t.Helper()
		p := start(t, "snib", "serve", "--listen", "unix:"+socket, "--url", store)
		await(t, "socket", func() bool {
			conn, err := net.Dial("unix", socket)
			return err == nil && conn.Close() == nil
		})
		return p
	}
	if err := os.WriteFile(filepath.Join(dir, "note"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := snib(t, "serve", "--listen", "unix:"+filepath.Join(dir, "note"), "--url", store); code != 64 || !strings.Contains(out, "no socket") {
		t.Errorf("a service in place of a file = %d %s, want 64", code, out)
	}
	long := filepath.Join(dir, strings.Repeat("x", 108))
	if out, code := snib(t, "serve", "--listen", "unix:"+long, "--url", store); code != 64 {
		t.Errorf("a socket to which nobody could connect = %d %s, want 64", code, out)
	}
	p := serve()
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket is %+v, %v, want mode 0600", info, err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("http://localhost/v1/acquire", "application/json", strings.NewReader(`{"name":"deploy"}`))
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("acquire through the socket = %+v, %v, want 200", resp, err)
	}
	if out, code := snib(t, "serve", "--listen", "unix:"+socket, "--url", store); code != 64 || !strings.Contains(out, "another program listens there") {
		t.Errorf("a second service on the socket = %d %s, want 64", code, out)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	p = serve() // the file is still there
	p.signal(syscall.SIGINT)
	p.wait()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end, the socket is there: %v", err)
	}
	p = serve()
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	serve()
	p.signal(syscall.SIGINT)
	p.wait()
	if text := p.out.String(); strings.Contains(text, "no answer") {
		t.Errorf("the end after the socket was removed: %s", text)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("the first service has removed the socket of the second: %v", err)
	}
}

// TestContainerfile runs the health check of the container file beside a service with a policy.
func TestContainerfile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, entry, _ := runOnce(t, "snib", "serve", "token", "health")
	_, entry, _ = strings.Cut(entry+"verbs = [\"read\"]\nprefixes = [\"health\"]\n", "\n\n")
	for name, text := range map[string]string{"policy.toml": entry, "health.token": token} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, url := startService(t, "sqlite:"+dir+"/locks.db", "--policy", dir+"/policy.toml")
	check := regexp.MustCompile(`HEALTHCHECK .*CMD (.*)`).FindStringSubmatch(read("Containerfile"))[1]
	check = strings.NewReplacer("http://127.0.0.1:7420", url, "/etc/snib", dir, "/usr/bin/", "").Replace(check)
	if _, stderr, code := runOnce(t, strings.Split(strings.Trim(check, `[]"`), `", "`)...); code != 0 {
		t.Errorf("%s: exit %d, %s", check, code, stderr)
	}
}
