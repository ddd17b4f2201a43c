package serve

import "net/http"

// contentPolicy lets a page of the service load its own files and talk to the service, and nothing
// else. Text that gets into a page by mistake is not run, and no page of others can frame it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// protect sets the headers that keep pages of others from using an answer in a browser. There
// is no header that admits other origins, and no cookie.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
