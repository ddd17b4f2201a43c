package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sniblock/snib/internal/livetest"
)

// A page is a tab of a browser of its own. It reports what no page may do: errors in scripts,
// violations of its policy, dialogs, and requests to other hosts.
type page struct {
	t      *testing.T
	ctx    context.Context
	origin string // of the service

	expected []string // parts of messages that a test provokes
}

// open opens the console at a URL, in a window of that size.
func open(t *testing.T, url string, width, height int64, expected ...string) *page {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(livetest.Binary(t, "chromium", "chromium")),
		chromedp.NoSandbox, // the tests may run as root, and open only our own page
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Env("HOME="+t.TempDir()),
	)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(stop)
	origin, _, _ := strings.Cut(url, "#")
	p := &page{t: t, origin: origin, expected: expected}
	ctx, closeTab := chromedp.NewContext(ctx, chromedp.WithListener(p.judge))
	t.Cleanup(closeTab)
	p.ctx = ctx
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	p.run(chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return p
}

// call sends a command of the DevTools protocol.
func call[Params, Result any](p *page, command cdp.Command[Params, Result], params Params) Result {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, func(ctx context.Context, tab *chromedp.Target) (Result, error) {
		return cdp.Call(ctx, tab, command, params)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// judge reports what no page may do.
func (p *page) judge(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.complain("an error in a script: " + fmt.Sprintf("%+v", e.ExceptionDetails))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.complain("the browser says: " + e.Entry.Text)
		}
	case *cdppage.EventJavascriptDialogOpening:
		p.complain("a dialog: " + e.Message)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.origin) {
			p.complain("a request to " + e.Request.URL)
		}
	}
}

func (p *page) complain(text string) {
	for _, part := range p.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	p.t.Error(text)
}

// run does things with the page.
func (p *page) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of an expression of JavaScript.
func (p *page) eval(expression string) any {
	p.t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[any](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// await waits until an expression is true.
func (p *page) await(expression string) {
	p.t.Helper()
	livetest.Await(p.t, expression, func() error {
		if value := p.eval("Boolean(" + expression + ")"); value != true {
			return fmt.Errorf("it is %v; the page shows:\n%v", value, p.eval("document.body.innerText"))
		}
		return nil
	})
}

// shows waits until an element shows a text.
func (p *page) shows(selector, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("document.querySelector(%s)?.innerText.includes(%s)", quote(selector), quote(text)))
}

// isLive waits until the page follows the service.
func (p *page) isLive() {
	p.t.Helper()
	p.await("document.querySelector('#link')?.innerText === 'live' && document.querySelector('#banner').innerText === ''")
}

// quote returns a text as a literal of JavaScript.
func quote(text string) string {
	literal, _ := json.Marshal(text) // a string can be encoded
	return string(literal)
}

// view goes to a view by the navigation, and waits for its heading.
func (p *page) view(name string) {
	p.t.Helper()
	p.press("nav a", name)
	p.shows("h1", name)
}

// press clicks the element that a selector finds, and that has exactly that text.
func (p *page) press(selector, text string) {
	p.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%s)].find((e) => e.innerText.trim() === %s)", quote(selector), quote(text))
	p.await(find + " && !" + find + ".disabled")
	p.eval("void " + find + ".click()")
}

// fill types a text into a field, as a keyboard does.
func (p *page) fill(selector, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("document.querySelector(%s)", quote(selector)))
	p.eval(fmt.Sprintf("document.querySelector(%s).focus()", quote(selector)))
	p.keys(text)
}

// askToBreak opens the dialog that breaks the hold on the page, and fills it in.
func (p *page) askToBreak(name string) {
	p.t.Helper()
	p.press("button", "Break…")
	p.await("document.querySelector('dialog').open") // which takes the focus
	p.fill("#break-name", name)
	p.fill("#break-reason", "it hangs")
}

// clear empties a field.
func (p *page) clear(selector string) {
	p.t.Helper()
	p.eval(fmt.Sprintf("((e) => { e.value = ''; e.dispatchEvent(new Event('input', { bubbles: true })); })(document.querySelector(%s))", quote(selector)))
}

// keys presses keys, whatever has the focus.
func (p *page) keys(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.run(chromedp.KeyEvent(k))
	}
}
