package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sniblock/snib/cmd/sniblab/internal/process"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/internal/livetest"
)

// A MissingError reports that a program is not installed that a target needs.
type MissingError struct {
	Peer, Program, Package string // the package of Debian, or ""
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%s needs %s, which is not installed", e.Peer, e.Program)
	if e.Package != "" {
		text += fmt.Sprintf(" (Debian, Ubuntu: apt install %s)", e.Package)
	}
	return text
}

// An InstallError reports that a library could not be installed.
type InstallError struct {
	Peer, Command string
	Err           error
	Output        string // the end of what the command said
}

func (e *InstallError) Error() string {
	text := fmt.Sprintf("%s can't be installed: %s: %v", e.Peer, e.Command, e.Err)
	if e.Output != "" {
		text += "; its output ends with: " + e.Output
	}
	return text
}

func (e *InstallError) Unwrap() error { return e.Err }

// A kit is what the targets of a language share: their programs, and the libraries.
type kit struct {
	name    string
	dir     string // of the programs, in files; "" if there is nothing to install
	needs   []need
	version []string                           // the command whose output an installation depends on
	steps   [][]string                         // the commands that install the libraries
	env     []string                           // of these commands
	command func(home, target string) []string // that runs a target
}

// A need is a program that must be installed, and the package of Debian that has it.
type need struct{ program, pkg string }

// files are the programs, and the lists of the libraries with their versions.
//
//go:embed python/target.py python/requirements.txt
//go:embed node/target.mjs node/package.json node/package-lock.json java/pom.xml java/jars.sha256 java/*.java
var files embed.FS

var (
	linked  = &kit{command: runGolang} // linked into this program
	flock   = &kit{needs: []need{{"flock", "util-linux"}}, command: runGolang}
	etcdctl = &kit{needs: []need{{"etcdctl", "etcd-client"}}, command: runGolang}
	python  = &kit{
		name: "python", needs: []need{{"python3", "python3-pip"}}, version: []string{"python3", "--version"},
		dir: "python",
		steps: [][]string{{"python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
			"--require-hashes", "--only-binary=:all:",
			"--target", "packages", "--requirement", "requirements.txt"}},
		command: func(home, target string) []string {
			return []string{"env", "PYTHONPATH=" + filepath.Join(home, "packages"), "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
				"python3", filepath.Join(home, "target.py"), target}
		},
	}
	node = &kit{
		name: "node", needs: []need{{"node", "nodejs"}, {"npm", "npm"}}, version: []string{"node", "--version"},
		dir:   "node",
		steps: [][]string{{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"}},
		command: func(home, target string) []string {
			return []string{"node", filepath.Join(home, "target.mjs"), target}
		},
	}
	java = &kit{
		name: "java", needs: []need{{"java", "default-jre"}, {"javac", "default-jdk"}, {"mvn", "maven"}}, version: []string{"javac", "-version"},
		dir: "java",
		steps: [][]string{
			{"mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=jars"},
			{"sh", "-c", "cd jars && LC_ALL=C sha256sum *.jar | cmp - ../jars.sha256"}, // Maven itself pins no content
			{"sh", "-c", "javac -d . -cp 'jars/*' *.java"},
		},
		command: func(home, target string) []string {
			return []string{"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(home, "jars", "*") + ":" + home,
				"Target", target}
		},
	}
)

// runGolang runs "sniblab target": see package golang.
func runGolang(_, target string) []string { return trial.OwnCommand(target) }

// sources returns the files of the kit by their names in the folder of the installation.
func (k *kit) sources() (map[string][]byte, error) {
	sources := make(map[string][]byte)
	entries, err := fs.ReadDir(files, k.dir)
	for _, e := range entries {
		text, failed := fs.ReadFile(files, path.Join(k.dir, e.Name()))
		sources[e.Name()] = text
		err = errors.Join(err, failed)
	}
	return sources, err
}

// Missing returns a [*MissingError] if a program is not installed that the peer needs.
func (p Peer) Missing() error {
	for _, n := range p.kit.needs {
		if _, err := exec.LookPath(n.program); err != nil {
			return &MissingError{p.Name, n.program, n.pkg}
		}
	}
	return nil
}

// Install installs the library of a peer, if that has not been done before, and returns the
// command that runs the target. It calls begin before it installs something, which takes up
// to some minutes and needs the network. Nothing is left behind if it fails or ctx ends.
func (p Peer) Install(ctx context.Context, begin func()) (command []string, err error) {
	if err := p.Missing(); err != nil {
		return nil, err
	}
	if p.kit.dir == "" {
		return p.kit.command("", p.Name), nil
	}
	home, err := p.kit.install(ctx, begin)
	if e, ok := errors.AsType[*InstallError](err); ok {
		e.Peer = p.Name
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("%s can't be installed: %w", p.Name, err)
	}
	return p.kit.command(home, p.Name), nil
}

// install returns the folder of the kit.
func (k *kit) install(ctx context.Context, begin func()) (home string, err error) {
	sources, err := k.sources()
	if err != nil {
		return "", err
	}
	name, err := k.installation(ctx, sources)
	if err != nil {
		return "", err
	}
	return livetest.Kept(ctx, name, func(unfinished string) error {
		begin()
		return k.installInto(ctx, unfinished, sources)
	})
}

// installInto installs the kit in a folder, which it creates.
func (k *kit) installInto(ctx context.Context, dir string, sources map[string][]byte) error {
	for name, text := range sources {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, text, 0o600)); err != nil {
			return err
		}
	}
	// A command that was killed leaves files in its folder for temporary files, which go with dir.
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	for _, step := range k.steps {
		if err := k.run(ctx, dir, step, "TMPDIR="+tmp); err != nil {
			return err
		}
	}
	return os.RemoveAll(tmp)
}

// installation returns the name of the installation, which depends on all that goes into it.
func (k *kit) installation(ctx context.Context, sources map[string][]byte) (string, error) {
	version, err := exec.CommandContext(ctx, k.version[0], k.version[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(k.version, " "), err)
	}
	digest := sha256.New()
	fmt.Fprintf(digest, "%s %q %q", version, k.steps, k.env)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		fmt.Fprintf(digest, "%q %q", name, sources[name])
	}
	return fmt.Sprintf("lab-%s-%.8x", k.name, digest.Sum(nil)), nil
}

// run runs a command in a folder. It ends with ctx, and so do its children.
func (k *kit) run(ctx context.Context, dir string, command []string, env ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, slices.Concat(installEnv(os.Environ()), k.env, env)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	p, err := process.Start(cmd)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	output, _ := io.ReadAll(p.Out) // what could be read is shown
	<-p.Exited()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !p.Succeeded():
		return &InstallError{Command: strings.Join(command, " "), Err: fmt.Errorf("%s", p.State()), Output: tail(append(output, stderr.Bytes()...))}
	}
	return nil
}

// installEnv returns the part of an environment that installing needs: where programs, caches and
// registries are. What else there is, such as credentials for other services, is none of a
// package's business.
func installEnv(environ []string) []string {
	names := regexp.MustCompile(`^(PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|JAVA_HOME|XDG_CACHE_HOME|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|` +
		`NODE_EXTRA_CA_CERTS|(?i:https?_proxy|no_proxy|all_proxy)|GO[A-Z0-9]+|PIP_\w+|(?i:npm_config_\w+)|MAVEN_\w+|JAVA_TOOL_OPTIONS)=`)
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return !names.MatchString(v) })
}

// tail returns the end of a text, on one line.
func tail(text []byte) string {
	const most = 500
	return string(bytes.Join(bytes.Fields(text[max(0, len(text)-most):]), []byte(" ")))
}
