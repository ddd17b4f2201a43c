package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The tools are not in go.mod: they are programs, and their many modules would raise those that the
// workspace has.
const (
	nfpmTool = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"
	sbomTool = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
	apiTool  = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e"
	manTool  = "github.com/cpuguy83/go-md2man/v2@v2.0.7"
)

// packageAll makes all files of the release from the binaries, and the checksums of these files
// last.
func (r *release) packageAll(ctx context.Context) error {
	date, err := r.date(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, time.Time) error{r.archives, r.packages, r.sbom} {
		if err := step(ctx, date); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(r.out, "NOTES.md"), []byte(r.releaseNotes()), 0o644); err != nil {
		return err
	}
	return r.checksums(ctx)
}

// date returns the date of the release commit, which is the date of all files in packages.
func (r *release) date(ctx context.Context) (time.Time, error) {
	text, err := git(ctx, r.clone, "show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return time.Time{}, err
	}
	date, err := time.Parse(time.RFC3339, text)
	return date.UTC(), err
}

// file returns the name of a file of the release for p, such as snib_0.1.0_linux_amd64.tar.gz.
func (r *release) file(p platform, suffix string) string {
	return filepath.Join(r.out, fmt.Sprintf("snib_%s_%s_%s%s", strings.TrimPrefix(r.version, "v"), p.os, p.arch, suffix))
}

// archives makes an archive of each binary: a tar file, or a zip file for Windows. Git gives the
// files in it the date of the commit.
func (r *release) archives(ctx context.Context, _ time.Time) error {
	for _, b := range r.built {
		suffix := ".tar.gz"
		if b.os == "windows" {
			suffix = ".zip"
		}
		_, err := call{dir: r.clone, env: []string{"TZ=UTC"}, cmd: []string{
			"git", "-c", "tar.umask=0022", "archive", "-9", "--output", r.file(b.platform, suffix),
			"--add-file", b.file, "HEAD", "LICENSE", "README.md", "CHANGELOG.md",
		}}.output(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// packages makes packages for Debian and for systems with RPM of each binary for Linux.
func (r *release) packages(ctx context.Context, date time.Time) error {
	files, err := r.share(ctx, date)
	if err != nil {
		return err
	}
	for _, b := range r.built {
		if b.os != "linux" {
			continue
		}
		for _, kind := range []string{"deb", "rpm"} {
			config, err := json.Marshal(r.nfpmConfig(b, kind, files, date)) // JSON is YAML, too
			if err != nil {
				return err
			}
			name := filepath.Join(r.tmp, "nfpm.yaml")
			if err := os.WriteFile(name, config, 0o644); err != nil {
				return err
			}
			_, err = r.goRun(ctx, r.tmp, nfpmTool, "package", "--config", name, "--packager", kind, "--target", r.file(b.platform, "."+kind))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// nfpmConfig returns what nfpm needs to know of a package of a kind with b.
func (r *release) nfpmConfig(b binary, kind string, files []shared, date time.Time) map[string]any {
	arch := b.arch
	if arch == "arm" {
		arch = "arm7" // as buildAll builds it
	}
	install := func(src, dst string, mode int) map[string]any {
		return map[string]any{"src": src, "dst": dst, "file_info": map[string]any{"mode": mode, "mtime": date}}
	}
	contents := []any{
		install(b.file, "/usr/bin/snib", 0o755),
		map[string]any{"dst": "/etc/snib", "type": "dir", "file_info": map[string]any{"mode": 0o755, "mtime": date}},
	}
	for _, f := range files {
		if kind == "rpm" { // zsh of such systems looks elsewhere than that of Debian
			f.dst = strings.Replace(f.dst, "/zsh/vendor-completions/", "/zsh/site-functions/", 1)
		}
		contents = append(contents, install(f.src, f.dst, 0o644))
	}
	return map[string]any{
		"name": "snib", "arch": arch, "platform": "linux", "version": r.version, "mtime": date,
		"section": "utils", "priority": "optional", "license": "Apache-2.0",
		"maintainer": "The snib authors <https://" + r.root + ">", "homepage": "https://" + r.root,
		"description": "Distributed locks for shell scripts\nsnib runs programs while it holds a lock in SQLite, Redis, PostgreSQL, MySQL,\nZooKeeper or etcd, and shows and frees such locks.",
		"contents":    contents,
		"scripts":     map[string]string{"postinstall": filepath.Join(r.clone, "cmd", "snib", "postinstall.sh")},
	}
}

// sbom writes a bill of materials of each binary, in the form of CycloneDX.
func (r *release) sbom(ctx context.Context, _ time.Time) error {
	for _, b := range r.built {
		_, err := r.goRun(ctx, r.tmp, sbomTool, "bin", "-json", "-std", "-noserial", "-notimestamp", "-output", r.file(b.platform, ".cdx.json"), b.file)
		if err != nil {
			return err
		}
	}
	return nil
}

// releaseNotes returns the text to publish with the release.
func (r *release) releaseNotes() string {
	var s strings.Builder
	fmt.Fprintf(&s, "# snib %s\n\n", r.version)
	fmt.Fprintf(&s, "The command: `go install %s/cmd/snib@%s`, or one of the files below.\n", r.root, r.version)
	fmt.Fprintf(&s, "The library: `go get %s@%s`, and in the same way the module of the backend, such as `%s/redislock@%[2]s`.\n", r.root, r.version, r.root)
	s.WriteString("`sha256sum --check --ignore-missing SHA256SUMS` checks the files that you have downloaded.\n")
	return s.String() + "\n" + r.notes + "\n"
}

// checksums writes the SHA-256 sums of all files that are published: not of the proxy, which is
// only for trying the release.
func (r *release) checksums(ctx context.Context) error {
	sums, err := call{dir: r.out, env: []string{"LC_ALL=C"}, cmd: []string{"sh", "-c", "sha256sum NOTES.md snib_*"}}.output(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums+"\n"), 0o644)
}
