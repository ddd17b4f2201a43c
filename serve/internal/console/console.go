// Package console is the web console of the lock service: a page that shows what the API says.
//
// The sources are in ui, and "make console" builds them into built, which is committed. The page
// loads nothing from elsewhere.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed built
var built embed.FS

// Path is where the console is. All other paths of it begin with it.
const Path = "/console/"

// policy lets the page load its own files and ask its own server, and nothing else. No page may
// frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the content types of the files: those of package mime depend on the host.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

// Has reports whether a request is for the console: for its address, or for one of its files.
func Has(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	name, ok := nameOf(r.URL.Path)
	if !ok {
		return r.URL.Path == "/" || r.URL.Path == strings.TrimSuffix(Path, "/")
	}
	info, err := fs.Stat(built, name)
	return err == nil && !info.IsDir()
}

// nameOf returns the name of the file at a path of a URL. It returns false above the console.
func nameOf(urlPath string) (string, bool) {
	name, ok := strings.CutPrefix(urlPath, Path)
	if name == "" {
		name = "index.html"
	}
	return "built/" + name, ok
}

// Serve answers a request that [Has] reports.
func Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	name, ok := nameOf(r.URL.Path)
	if !ok {
		h.Set("Location", "console/") // relative: a proxy may have added a prefix
		w.WriteHeader(http.StatusFound)
		return
	}
	file, _ := fs.ReadFile(built, name) // Has reports that it exists
	sum := sha256.Sum256(file)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	h.Set("Content-Type", types[path.Ext(name)])
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
}
