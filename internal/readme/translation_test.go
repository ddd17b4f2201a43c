package readme

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page such as README.zh.md is the translation of README.md. Above each of its sections, a stamp
// names the section of the original and has the digest of the text that was translated. A section
// that nobody could translate again has the word outdated instead, and a link to the original.
var (
	translated = regexp.MustCompile(`\.(zh|ja)\.md$`)
	linked     = regexp.MustCompile(`\.(?:zh|ja)\.md(#|$)`) // in the target of a link
	stamp      = regexp.MustCompile(`(?m)^<!-- (.+): ([0-9a-f]{8}|outdated) -->\n`)
)

// words is the line above the word list at the end of a translation.
const words = "<!-- words -->\n"

func TestTranslations(t *testing.T) {
	pages, _ := files(t, root)
	found := 0
	for name, text := range pages {
		if !translated.MatchString(name) {
			continue
		}
		found++
		original := translated.ReplaceAllString(name, ".md")
		if os.Getenv("UPDATE") != "" {
			text = restamp(pages[original], text)
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, problem := range compare(filepath.Base(original), pages[original], text) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	if found == 0 {
		t.Error("found no translation")
	}
}

func TestWords(t *testing.T) {
	pages, _ := files(t, root)
	list := newWordList(pages[filepath.Join(root, "docs", "glossary.md")])
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		if !translated.MatchString(name) {
			continue
		}
		for _, problem := range list.check(translated.FindString(name), pages[name]) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// A wordList has the English words of the glossary, and the words of all translations.
type wordList struct {
	english map[string]bool
	chosen  map[[2]string]string // by language and English word
}

func newWordList(glossary string) wordList {
	l := wordList{english: map[string]bool{}, chosen: map[[2]string]string{}}
	for row := range rows(glossary) {
		for word := range strings.SplitSeq(row[0], ", ") {
			l.english[word] = true
		}
	}
	return l
}

// check returns what is wrong with the word list of a page: its English words are to be in the
// glossary, the page is to use the words of its own language, and all pages of a language are to
// use the same ones.
func (l wordList) check(language, page string) (problems []string) {
	text, list, ok := strings.Cut(page, words)
	if !ok {
		return []string{fmt.Sprintf("there is no word list below a line %q", words)}
	}
	for row := range rows(list) {
		english, word := row[0], row[1]
		if !l.english[english] {
			problems = append(problems, fmt.Sprintf("%q is not in docs/glossary.md", english))
		}
		if !strings.Contains(text, word) {
			problems = append(problems, fmt.Sprintf("the page does not use %q, its word for %q", word, english))
		}
		key := [2]string{language, english}
		if other, ok := l.chosen[key]; ok && other != word {
			problems = append(problems, fmt.Sprintf("%q for %q; another page of this language says %q", word, english, other))
		}
		l.chosen[key] = word
	}
	return problems
}

// A section is a heading with the text up to the next heading.
type section struct {
	title, text string
	digest      string // of the original's text; in a translation, of the text that was translated
}

// sections returns the sections of an original.
func sections(markdown string) []section {
	var found []section
	code := false
	for line := range strings.Lines(markdown) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if strings.HasPrefix(line, "#") && !code {
			found = append(found, section{title: strings.Trim(line, "# \n")})
		}
		if len(found) > 0 {
			found[len(found)-1].text += line
		}
	}
	for i, s := range found {
		found[i].digest = digest(s.text)
	}
	return found
}

// stamped returns the sections of a translation.
func stamped(markdown string) []section {
	markdown, _, _ = strings.Cut(markdown, words)
	var found []section
	at := stamp.FindAllStringSubmatchIndex(markdown, -1)
	for i, m := range at {
		end := len(markdown)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		found = append(found, section{title: markdown[m[2]:m[3]], digest: markdown[m[4]:m[5]], text: markdown[m[1]:end]})
	}
	return found
}

// digest does not depend on where lines are broken.
func digest(text string) string {
	sum := sha256.Sum256([]byte(strings.Join(strings.Fields(text), " ")))
	return fmt.Sprintf("%x", sum[:4])
}

// restamp returns the translation with the digests of the original as it is now. Sections that
// cannot be its translation keep theirs.
func restamp(original, translation string) string {
	now := map[string]section{}
	for _, s := range sections(original) {
		now[s.title] = s
	}
	for _, s := range stamped(translation) {
		if s.digest != "outdated" && compareSection(now[s.title].text, s.text, map[string]string{}) == "" {
			const format = "<!-- %s: %s -->\n"
			translation = strings.Replace(translation, fmt.Sprintf(format, s.title, s.digest),
				fmt.Sprintf(format, s.title, now[s.title].digest), 1)
		}
	}
	return translation
}

// compare returns what is wrong with a translation of the page called name.
func compare(name, original, translation string) (problems []string) {
	want, got := sections(original), stamped(translation)
	said := map[string]string{}
	for i, w := range want {
		if i == len(got) || got[i].title != w.title {
			return []string{fmt.Sprintf("section %q of %s is not here, or not in its place: there is no line <!-- %[1]s: "+
				"%[3]s -->", w.title, name, w.digest)}
		}
	}
	if len(got) > len(want) {
		return []string{fmt.Sprintf("section %q is not in %s", got[len(want)].title, name)}
	}
	for i, w := range want {
		g := got[i]
		if g.digest == "outdated" {
			if !strings.Contains(g.text, "]("+name+")") {
				problems = append(problems, fmt.Sprintf("section %q is outdated and does not link to %s", g.title, name))
			}
			continue
		}
		problem := compareSection(w.text, g.text, said)
		switch {
		case g.digest != w.digest:
			problems = append(problems,
				fmt.Sprintf("section %q of %s has changed since it was translated. Translate the change; then run "+
					"UPDATE=1 go test -run TestTranslations ./internal/readme. If you don't know the language, write outdated in "+
					"place of the digest, "+
					"and a link to %[2]s below the heading. %[3]s", w.title, name, problem))
		case problem != "":
			problems = append(problems, fmt.Sprintf("section %q: %s", w.title, problem))
		}
	}
	return problems
}

// compareSection compares what is the same in each language: the code, the number of paragraphs,
// items and cells, and the facts in each of them. Text that occurs twice in the original has one
// translation; said has the translations so far. It returns the first difference, because others
// may follow from it.
func compareSection(original, translation string, said map[string]string) string {
	if got, want := code(translation), code(original); got != want {
		return fmt.Sprintf("code without comments\n%s\nwant\n%s", got, want)
	}
	got, want := units(translation), units(original)
	for i, w := range want {
		if i == len(got) {
			return fmt.Sprintf("there is nothing for %q", w)
		}
		if before, ok := said[w]; ok && before != got[i] {
			return fmt.Sprintf("%q for %q, which is %q elsewhere", got[i], w, before)
		}
		said[w] = got[i]
		for _, fact := range slices.Sorted(maps.Keys(facts(w))) {
			if !facts(got[i])[fact] {
				return fmt.Sprintf("%q lacks %s of %q", got[i], fact, w)
			}
		}
	}
	if len(got) > len(want) {
		return fmt.Sprintf("nothing in the original stands for %q", got[len(want)])
	}
	return ""
}

// code returns the code blocks of a section without their comments, which may be translated.
func code(text string) string {
	var all strings.Builder
	for _, b := range blocks(text) {
		all.WriteString(b.lang + "\n" + comment.ReplaceAllString(b.text, ""))
	}
	return all.String()
}

var comment = regexp.MustCompile(`(?m)\s*(//|#)\s.*$`)

// units returns the headings, paragraphs, list items and table cells of a section.
func units(text string) []string {
	var found []string
	code, open := false, false // open: the next line may belong to the last unit
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			code, open = !code, false
		case code, tableRule.MatchString(line):
		case line == "", strings.HasPrefix(line, "<!--"):
			open = false
		case strings.HasPrefix(line, "|"):
			found = append(found, cells(line)...)
		case open && !item.MatchString(line):
			found[len(found)-1] += " " + line
		default:
			found, open = append(found, line), true
		}
	}
	return found
}

var (
	item      = regexp.MustCompile(`^(-|[0-9]+\.|#+) `)
	tableRule = regexp.MustCompile(`^\|[ :|-]+\|$`)
)

func cells(line string) []string {
	row := strings.Split(strings.Trim(line, "|"), "|")
	for i, cell := range row {
		row[i] = strings.TrimSpace(cell)
	}
	return row
}

// rows yields the rows of the tables of a page.
func rows(text string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		below := false // the line is below the head of a table
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case tableRule.MatchString(line):
				below = true
			case !strings.HasPrefix(line, "|"):
				below = false
			case below && !yield(cells(line)):
				return
			}
		}
	}
}

// facts returns what nobody translates: code, targets of links, options, names with a capital
// inside, abbreviations and numbers.
func facts(text string) map[string]bool {
	found := map[string]bool{}
	for _, fact := range fact.FindAllString(text, -1) {
		found[linked.ReplaceAllString(strings.Trim(fact, "]()"), ".md$1")] = true
	}
	return found
}

var fact = regexp.MustCompile("`[^`]+`" +
	`|\]\([^)\s]+\)|--[a-z-]+[a-z]|[A-Za-z]+([._][A-Za-z]+)+|[A-Za-z]*[a-z][A-Z][A-Za-z]*|[A-Z]{2,}|[0-9]+([.,][0-9]+)*`)

// The tests below show that the checks can fail.
