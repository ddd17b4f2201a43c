package peers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/internal/livetest"
)

// TestCatalog checks what people need to know about a peer, and that it names faults that exist.
func TestCatalog(t *testing.T) {
	seen, faults := make(map[string]bool), make(map[string]bool)
	for _, f := range trial.Faults() {
		faults[f.Name] = true
	}
	for _, p := range All() {
		if seen[p.Name] {
			t.Errorf("%s is there twice", p.Name)
		}
		seen[p.Name] = true
		texts := []string{string(p.Store), p.Language, p.Library, p.Version, p.Settings, p.Held}
		if slices.Contains(texts, "") || p.kit == nil {
			t.Errorf("%s: something is missing: %+v", p.Name, p)
		}
		for _, s := range p.statements {
			if s.text == "" || !strings.HasPrefix(s.page, "https://") || strings.HasSuffix(s.text, ".") {
				t.Errorf("%s: the statement %q has no page, or ends with a full stop", p.Name, s.text)
			}
			for _, fault := range s.excludes {
				if !faults[fault] {
					t.Errorf("%s: there is no fault %s", p.Name, fault)
				}
			}
		}
	}
}

// TestNamed checks what the names of groups stand for.
func TestNamed(t *testing.T) {
	for name, want := range map[string]int{"redsync": 1, "foreign": len(All()), "foreign-etcd": 2, "foreign-": 0,
		"foreign-oracle": 0, "foreigner": 0, "": 0} {
		if got := Named(name); len(got) != want {
			t.Errorf("Named(%q) = %d peers, want %d", name, len(got), want)
		}
	}
}

// TestTarget checks that a fault is excused by the first statement that excludes it, with
// its page.
func TestTarget(t *testing.T) {
	c := Named("pottery")[0].Target()
	if got := c.Assumes["pause"]; !strings.HasPrefix(got, "the critical section") || !strings.Contains(got, "brainix/pottery") {
		t.Errorf("pause is excused by %q", got)
	}
	if c.Assumes["store-forget"] == "" || c.Assumes["kill"] != "" {
		t.Errorf("the target is %+v", c)
	}
	if c := Named("redis-py")[0].Target(); len(c.Assumes) != 0 {
		t.Errorf("redis-py has the excuses %v", c.Assumes)
	}
}

// TestExclusions checks that a statement excludes a fault together with those that are like it for
// a holder: a cut ends in three ways, and a hold lasts as long while a waiter is stopped as while
// the holder is cut off.
func TestExclusions(t *testing.T) {
	alike := map[string][]string{
		"cut":          {"late-cut", "no-answers"},
		"store-forget": {"lost-renewal", "late-cut", "no-answers", "stop-waiter", "kill-waiter", "disk-full"},
	}
	for _, p := range All() {
		for _, s := range p.statements {
			for fault, others := range alike {
				if len(s.excludes) < 2 || !slices.Contains(s.excludes, fault) { // one alone is what the server forgets
					continue
				}
				for _, other := range others {
					if !slices.Contains(s.excludes, other) {
						t.Errorf("%s: %q excludes %s, and not %s", p.Name, s.text, fault, other)
					}
				}
			}
		}
	}
}

// TestPins checks that the versions of the catalog are those that are installed, and that the
// examples have the same.
func TestPins(t *testing.T) {
	pins := map[string]string{
		"Go": read(t, "../../go.mod"), "shell": "util-linux as installed, etcdctl as installed", "Python": read(t, "python/requirements.txt"),
		"Node.js": read(t, "node/package.json"), "Java": read(t, "java/pom.xml"),
	}
	for _, p := range All() {
		name := strings.TrimPrefix(strings.ReplaceAll(p.Library, "redis-py", "redis"), "flock of ")
		name = regexp.QuoteMeta(strings.ToLower(name))
		name = strings.TrimSuffix(strings.TrimSuffix(name, "/concurrency"), "/rueidislock")
		if p.Library == "ShedLock" {
			name = "shedlock-provider-[a-z-]+"
		}
		pin := regexp.MustCompile(name + `[^\n]{0,40}?\b` + "v?" + regexp.QuoteMeta(p.Version))
		if !pin.MatchString(strings.ToLower(pins[p.Language])) {
			t.Errorf("%s: %s %s is not what is installed for %s", p.Name, p.Library, p.Version, p.Language)
		}
	}
	for line := range strings.Lines(read(t, "../../../../examples/python/requirements.txt")) { // with digests
		if !strings.Contains(pins["Python"], line) {
			t.Errorf("requirements.txt lacks the line %q of the example", line)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMissing checks the error for a program that is not installed.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Named("curator")[0].Install(t.Context(), func() { t.Error("the installation begins") })
	if _, ok := errors.AsType[*MissingError](err); !ok || err.Error() != "curator needs java, which is not installed (Debian, Ubuntu: apt install default-jre)" {
		t.Errorf("Install = %v", err)
	}
}

// fake returns a peer whose installation is a shell command.
func fake(t *testing.T, step string) (p Peer, cache string) {
	t.Helper()
	cache = t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	k := *node
	k.name, k.needs, k.version, k.steps = "fake", nil, []string{"true"}, [][]string{{"sh", "-c", step}}
	return Peer{Name: "fake", kit: &k}, cache
}

// TestInstall checks that an installation is made once, and is complete when it appears.
func TestInstall(t *testing.T) {
	p, _ := fake(t, `echo made >file; touch "$TMPDIR/left"`)
	begun := 0
	for range 2 {
		command, err := p.Install(t.Context(), func() { begun++ })
		if err != nil {
			t.Fatal(err)
		}
		home := filepath.Dir(command[1])
		if text := read(t, filepath.Join(home, "file")); text != "made\n" {
			t.Errorf("the file has %q", text)
		}
		read(t, filepath.Join(home, "target.mjs"))
		if left, err := filepath.Glob(filepath.Join(home, "*", "left")); len(left) > 0 || err != nil {
			t.Errorf("temporary files are left: %v, %v", left, err)
		}
	}
	if begun != 1 {
		t.Errorf("%d installations, want 1", begun)
	}
}

// TestInstallFails checks that an installation that fails, or is interrupted, says why, and leaves
// nothing but its lock file.
func TestInstallFails(t *testing.T) {
	t.Run("Failed", func(t *testing.T) {
		p, cache := fake(t, "echo no such version >&2; exit 3")
		_, err := p.Install(t.Context(), func() {})
		if _, ok := errors.AsType[*InstallError](err); !ok || !strings.Contains(err.Error(), "fake can't be installed: sh -c echo") ||
			!strings.HasSuffix(err.Error(), ": exit status 3; its output ends with: no such version") {
			t.Errorf("Install = %v", err)
		}
		checkEmpty(t, cache)
	})
	t.Run("Interrupted", func(t *testing.T) {
		p, cache := fake(t, "sleep 1000 & echo begun >begun; wait")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			livetest.Await(t, "the installation", func() error {
				found, err := filepath.Glob(filepath.Join(cache, "snib", "*.part", "begun"))
				if len(found) == 0 {
					return errors.Join(err, errors.New("it has not begun"))
				}
				return nil
			})
			cancel(errors.New("interrupted"))
		}()
		began := time.Now()
		if _, err := p.Install(ctx, func() {}); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("Install = %v after %v", err, time.Since(began))
		}
		checkEmpty(t, cache)
	})
}

func checkEmpty(t *testing.T, cache string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(cache, "snib", "*"))
	if len(left) != 1 || !strings.HasSuffix(left[0], ".lock") {
		t.Errorf("the cache has %v, %v, want a lock file only", left, err)
	}
}
