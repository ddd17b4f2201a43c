package main

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
)

// TestExportOfRedis checks that snib export serves what it finds in a real store, goes on when the
// store is gone, and ends with TERM.
func TestExportOfRedis(t *testing.T) {
	node, dir := redisStore(t)
	_, stop := startHolder(t, "deploy")
	startWaiter(t, "deploy")
	log := filepath.Join(dir, "log")
	export := start(t, "sh", "-c", `exec snib export --listen 127.0.0.1:0 --every 1s 2>"$0"`, log)
	awaitText(t, log, "serving http://")
	url := regexp.MustCompile(`http://\S+`).FindString(read(log))
	for _, want := range []string{
		`distributed_lock_store_locks{backend="redis",resource="deploy"} 1`,
		`distributed_lock_store_waiting{backend="redis",resource="deploy"} 1`,
		`distributed_lock_store_longest_wait_seconds{backend="redis",resource="deploy"} [0-9]`,
		`snib_store_check{backend="redis",check="version",verdict="ok"} 1`,
		`snib_store_clock_ahead_seconds{backend="redis",check="clock"} -?[0-9]`,
		`snib_store_grace_seconds{backend="redis"} 0`,
		`snib_store_leaks{backend="redis",kind="endless"} 0`,
	} {
		re := regexp.MustCompile(`(?m)^` + want)
		await(t, want, func() bool { return re.MatchString(scrape(url)) })
	}
	stop()
	node.Kill()
	awaitText(t, log, "the store can't be examined: ")
	failures := regexp.MustCompile(`distributed_lock_store_survey_failures_total{backend="redis"} [1-9]`)
	await(t, "failed survey", func() bool { return failures.MatchString(scrape(url)) })
	if err := export.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := export.wait(); code != 0 {
		t.Errorf("after TERM the exit code is %d: %s", code, read(log))
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
