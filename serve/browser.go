package serve

import "net/http"

// contentPolicy lets a page of the service load its own files and talk to the service, and nothing
// else. Text that gets into a page by mistake is not run, and no page of others can frame it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// answerHeaders keep pages of others from using an answer in a browser, and everybody from keeping
// it. There is no header that admits other origins, and no cookie. A request that waits has them
// already, so all share their values.
var answerHeaders = http.Header{
	"Cache-Control":                {"no-store"},
	"Content-Security-Policy":      {contentPolicy},
	"Cross-Origin-Opener-Policy":   {"same-origin"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Referrer-Policy":              {"no-referrer"},
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
}
