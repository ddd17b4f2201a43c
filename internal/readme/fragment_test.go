package readme

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestFragments follows the fragments of relative links: each must be a heading, or an anchor, of
// the page that the link leads to.
func TestFragments(t *testing.T) {
	pages, _ := files(t, root)
	for name, text := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)\s:#]*)#([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			if to, ok := pages[target]; ok && !slices.Contains(anchors(to), m[2]) {
				t.Errorf("%s links to %s, which has no heading #%s", name, target, m[2])
			}
		}
	}
}

// anchors returns the fragments that lead into a page: those that GitHub makes of its headings, and
// the ids of its anchors.
func anchors(markdown string) []string {
	for _, b := range blocks(markdown) {
		markdown = strings.Replace(markdown, "\n"+b.text+"```", "\n```", 1) // a comment in code is no heading
	}
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$|<a id="([^"]+)">`).FindAllStringSubmatch(markdown, -1) {
		anchor := m[2]
		if anchor == "" {
			anchor = fragment(m[1])
		}
		unique := anchor
		for i := 1; slices.Contains(found, unique); i++ {
			unique = fmt.Sprintf("%s-%d", anchor, i)
		}
		found = append(found, unique)
	}
	return found
}

// fragment returns what GitHub makes of a heading.
func fragment(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}
