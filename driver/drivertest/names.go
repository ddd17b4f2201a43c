package drivertest

import (
	"fmt"
	"strings"

	"github.com/sniblock/snib/driver"
)

func nameClauses() []clause {
	return []clause{
		{
			name: "Names/Unusual",
			why:  "a driver escapes or hashes what its store can't take: it never rejects a name",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				for _, name := range unusualNames() {
					t.lockName = name
					l := t.acquire(d1, t.req("a")) // waits if another run of the suite has it
					t.mustBeHeld(d2, t.req("b"), fmt.Sprintf("of %q", name))
					if st := t.status(d2); st.Name != name || len(st.Holders) != 1 {
						t.Errorf("Status of %q, which is held, = %+v", name, st)
					}
					t.release(l)
				}
			},
		},
		{
			name: "Names/Longest",
			why:  "a name may have 512 bytes, and all of them count: what a store cuts off is what two names differ in",
			run: func(t *trial) {
				pad := strings.Repeat("n", driver.MaxName-len(t.name(""))-1)
				wide := strings.Repeat("語", (driver.MaxName-len(t.name(""))-1)/len("語"))
				t.mustBeDistinct(pad+"1", pad+"2", pad, "1"+pad, "2"+pad, wide, wide+"x")
			},
		},
		{
			name: "Names/Case",
			why:  "case counts: stores whose collation folds it make two locks one",
			run: func(t *trial) {
				t.mustBeDistinct("Invoice", "invoice", "INVOICE", "straße", "strasse", "STRASSE", "İ", "i", "ı", "I", "a%2Fb",
					"a%2fb")
			},
		},
		{
			name: "Names/Space",
			why:  "spaces count, also at the end, where SQL comparisons like to ignore them",
			run: func(t *trial) {
				t.mustBeDistinct("a", "a ", "a  ", " a", "a\t", "a\n", "a\r\n", "a\u00a0", "a b", "ab", "a  b")
			},
		},
		{
			name: "Names/Escaping",
			why:  "the mapping from names to keys is one to one: no name may look like the escaped form of another",
			run: func(t *trial) {
				t.mustBeDistinct("a/b", "a_b", "a-b", "a.b", "a:b", "a%2Fb", "a%252Fb", `a\b`, `a\\b`, `a\/b`,
					"a//b", "a/./b", "a/b/", "a/c/../b", "/a/b", "a+b", "a&b", "a=2Fb", "a~1b", "a__b", "a*b", "a?b",
					"a[b]", "{a}b", "a{b}", "a", "%", "%%", "_", "'a'", `"a"`, "`a`", "a--", "a#b", "a;b", "YS9i", "a2f62")
			},
		},
		{
			name: "Names/Unicode",
			why:  "names are bytes: two ways to write a letter are two names",
			run: func(t *trial) {
				t.mustBeDistinct("caf\u00e9", "cafe\u0301", "cafe", "\u212b", "\u00c5", "A\u030a", "A", "ﬁ", "fi", "ａ",
					"x\u200by", "x\ufeffy", "xy", "Ω", "\u2126")
			},
		},
	}
}

// unusualNames returns complete names that stores are known to have trouble with.
func unusualNames() []string {
	return []string{
		".", "..", "...", ".hidden", "/", "//", "/etc/passwd", "../up", "a/", "~", "-", "--", "-rf", "CON", "nul.txt",
		" ", "  ", "\t", "\n", "\r\n", "a\nb", "\x01", "\x1b[31m", "\x7f", "\u0080", "\u2028", "\ufeff", "\ufffd",
		"%", "_", "*", "?", "[", "]", "[a-z]", "%_*?[]", `\`, `\\`, `\n`, `\x00`, "'", `"`, "`", "';--", "$1", "?1", ":a",
		"@a", "#", "{}", "{a}", "{a}{b}", "}{", "${HOME}", "$(id)", "&", "|", ";", "=", "+", ",", "<", ">", "(", "^", "!",
		"0", "-1", "1e3", "0x10", "true", "null", "NULL", "undefined",
		"naïve", "日本語", "עברית", "العربية", "e\u0301", "🔒", "👩‍👩‍👧‍👦", "\U0010ffff", strings.Repeat("🔒", 128),
	}
}

// mustBeDistinct checks that names, each prefixed with the trial's id, are different locks: all
// of them can be held at once.
func (t *trial) mustBeDistinct(names ...string) {
	t.Helper()
	d1, d2 := t.open(), t.open()
	for i, name := range names {
		req, other := t.req(fmt.Sprint("a", i)), t.req(fmt.Sprint("b", i))
		req.Name, other.Name = t.name(name), t.name(name)
		w := t.startAcquire(d1, req)
		if _, ok := await(t, w.done, waitTimeout); !ok {
			t.Fatalf("Acquire of %q waits, while others hold %q", name, names[:i])
		}
		if w.err != nil {
			t.Fatalf("Acquire of %q = %v, want a lease; held are %q", name, w.err, names[:i])
		}
		t.mustBeHeld(d2, other, fmt.Sprintf("of %q", name))
	}
}
