// Package dashboard is the page that a person opens in a browser to see what the gateway does and to talk to its agents.
//
// # Ideas
//
// It is static. The files are embedded and hold no data: no version, no host, no name. The page reveals nothing to a client without a token.
// Everything that it shows comes over the public WebSocket protocol, with the credential of the person who looks, so it can do
// nothing that another client of that person could not do.
//
// It talks to its own origin only and takes no address from anywhere. The token is asked for, or taken once from the fragment of the
// URL (`#token=…`), which never leaves the browser, and removed there; it is kept in session storage, which ends with the tab.
//
// # Promises
//
//   - The policy `default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'` holds: no inline script or style, nothing from elsewhere. Pictures of
//     messages are fetched with the token of the tab and shown from memory.
//   - Text of other people is always set as text, never as markup.
//
// # What it does not do
//
// It checks no credential; the gateway does that on the socket. It has no build step and no dependencies.
//
// # Example
//
//	srv, err := gateway.New(gateway.Config{Dashboard: dashboard.Handler(), …}, backend, log)
package dashboard

import (
	"embed"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var files embed.FS

const (
	root   = "/dashboard"
	policy = "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'"
)

// Handler serves the page at /dashboard and its files below. It is safe for concurrent use.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page is only read", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == root+"/" { // the addresses in the page are relative to the one without the slash, because a proxy may serve it below a path
		h.Set("Location", ".."+root)
		w.WriteHeader(http.StatusFound)
		return
	}
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, root), "/")
	if name == "" {
		name = "index.html"
	}
	body, err := files.ReadFile("static/" + name)
	if err != nil {
		http.Error(w, "no such file", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", contentType(name))
	h.Set("Cache-Control", "no-cache") // a new binary must not meet an old page
	_, _ = w.Write(body)               //nolint:errcheck,gosec // the client has gone; the files are embedded
}

// contentType does not ask the host's own table: on some of them scripts are plain text, and browsers then refuse to run them.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return "application/octet-stream"
	}
}
