package serve

import "net/http"

// answerHeaders keep pages of others from using an answer in a browser or framing it, browsers from
// taking it for a page, and everybody from keeping it. There is no header that admits other
// origins, and no cookie. The console has more, for it is a page. A request that waits has them
// already, so all share their values, and they are few.
var answerHeaders = http.Header{
	"Cache-Control":                {"no-store"},
	"Content-Security-Policy":      {"default-src 'none'; frame-ancestors 'none'"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"X-Content-Type-Options":       {"nosniff"},
}
