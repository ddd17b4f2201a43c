package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/sniblock/snib/remotelock/wire"
)

var pictures = flag.String("pictures", "", "write a picture of each view to this folder")

// TestLooks goes through all views, on a wide screen and on a telephone, light and dark. Nothing is
// wider than the window, each control has a name for a screen reader, and all text has the contrast
// that WCAG 2.2 demands (AA, 1.4.3). With -pictures, it writes a picture of each view.
func TestLooks(t *testing.T) {
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"wide", 1440, 900}, {"narrow", 390, 844}} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(screen.name+"/"+scheme, func(t *testing.T) {
				s := startService(t, nil, nil)
				scene(s)
				p := open(t, s.url(), screen.width, screen.height)
				call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				p.isLive()
				for _, view := range []struct{ name, hash, shows string }{
					{"locks", "#/locks", "release 7"},
					{"lock", "#/lock/deploy", "release 8"},
					{"break", "#/lock/deploy", "Break…"},
					{"holders", "#/holders", "holds 3, waits for 2"},
					{"waits", "#/waits", "build-9:42 wait for each other"},
					{"leaks", "#/leaks", "nobody can have meant"},
					{"store", "#/store", "Fencing tokens"},
				} {
					p.eval("location.hash = " + quote(view.hash))
					p.shows("main", view.shows)
					if view.name == "store" {
						p.press("button", "Examine the store")
						p.shows("main", "set maxmemory-policy noeviction")
					}
					if view.name == "break" {
						p.askToBreak("deploy")
					}
					checkLooks(p, view.name)
					switch screen.name + " " + scheme {
					case "wide light":
						p.picture("console-" + view.name + ".png")
					case "narrow dark":
						p.picture("console-" + view.name + "-narrow.png")
					}
					if view.name == "break" {
						p.press("dialog button", "Cancel")
					}
				}
			})
		}
	}
}

// TestFirstSteps follows the first steps of docs/serve.md: one client takes a lock, and a second
// one waits for it.
func TestFirstSteps(t *testing.T) {
	s := startService(t, nil, nil)
	var alice wire.Granted
	s.post(wire.PathAcquire, `{"name": "deploy", "id": "alice-oM3kq8vT2xYb7RwZ", "ttl_ms": 600000, "host": "laptop", "label": "release 7"}`, &alice)
	granted := make(chan wire.Granted, 1)
	go func() {
		var bob wire.Granted
		s.post(wire.PathAcquire, `{"name": "deploy", "id": "bob-oM3kq8vT2xYb7RwZp", "wait_ms": 20000}`, &bob)
		granted <- bob
	}()
	p := open(t, s.url()+"#/lock/deploy", 1440, 900)
	p.shows(".card", "release 7")
	p.await("document.querySelectorAll('tbody tr').length === 1")
	p.picture("serve-first-steps.png")
	s.post(wire.PathRelease, fmt.Sprintf(`{"name": "deploy", "id": "%s"}`, alice.ID), nil)
	p.shows(".card", fmt.Sprint((<-granted).Token))
}

// scene fills a store with locks as people have them.
func scene(s *service) {
	alice, bob, carol := s.client("build-7"), s.client("build-9"), s.client("web-1")
	alice.holder.Label, bob.holder.Label, carol.holder.Label = "release 7", "release 8", "reindex"
	alice.hold("deploy")
	bob.queue("deploy")
	carol.queue("deploy")
	for _, name := range []string{"orders/import", "orders/export", "stock/count"} {
		carol.hold(name)
	}
	bob.hold("migrate/accounts")
	carol.queue("migrate/accounts")
	bob.queue("stock/count")
}

// checkLooks checks what TestLooks promises, of the page as it is.
func checkLooks(p *page, view string) {
	p.t.Helper()
	noOverflow(p, view)
	allNamed(p, view)
	enoughContrast(p, view)
}

// allNamed reports controls that a screen reader can't name.
func allNamed(p *page, view string) {
	p.t.Helper()
	controls := 0
	for _, n := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		switch role := strings.Trim(string(n.Role.Value), `"`); role {
		case "button", "link", "textbox", "searchbox", "treeitem", "tree", "dialog", "navigation", "table":
			controls++
			if n.Name == nil || strings.Trim(string(n.Name.Value), `"`) == "" {
				p.t.Errorf("%s: a %s has no name", view, role)
			}
		}
	}
	if controls < 5 {
		p.t.Errorf("%s: %d controls have been found, want those of the navigation at least", view, controls)
	}
}

// poorContrast is a script that returns the texts whose contrast with what is behind them is too
// small.
const poorContrast = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
	const light = ([r, g, b]) => [r, g,
		b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
		return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
	};
	const poor = [];
	const dialog = document.querySelector("dialog[open]");
	for (const e of (dialog ?? document.body).querySelectorAll("*")) {
		if (e.disabled || e.closest("[aria-hidden]") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
		const style = getComputedStyle(e);
		const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		const isLarge = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 &&
			Number(style.fontWeight) >= 700;
		if (ratio < (isLarge ? 3 : 4.5)) poor.push(e.tagName + "." + e.className + " " + JSON.stringify(e.innerText.slice(0, 30)) + " has " + ratio.toFixed(2));
	}
	return poor.join("\n");
})()`

func enoughContrast(p *page, view string) {
	p.t.Helper()
	if poor := p.eval(poorContrast); poor != "" {
		p.t.Errorf("%s: too little contrast:\n%v", view, poor)
	}
}

// picture writes a picture of the page if pictures are wanted.
func (p *page) picture(name string) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
