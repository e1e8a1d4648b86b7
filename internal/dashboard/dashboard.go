// Package dashboard is the page that a person opens in a browser to see what the gateway does and to talk to its agents.
//
// # Ideas
//
// It is static. The files are embedded and hold no data: no version, no host, no name. The page reveals nothing to a client without a token.
// Everything that it shows comes over the public WebSocket protocol, with the credential of the person who looks, so it can do
// nothing that another client of that person could not do.
//
// It connects to its own origin only and takes no address from anywhere. The token is asked for, or taken once from the fragment of the
// URL (`#token=…`), which never leaves the browser, and removed there. A token from a link is used only after the person has seen the name of its
// credential and has confirmed it. It is kept in session storage, which ends with the tab.
//
// All addresses are relative to the page, which is at /dashboard/: a proxy may serve it below any path, and the gateway does not know that path.
//
// web has one module for each page, ui has what pages share, store.js has the state as signals, and rpc.js alone uses the socket. vendor has Preact
// as it was published, see vendor/README.md: there is no build step. types has the types of the protocol, made from the table of methods, with which the type
// checker of TypeScript checks the modules (make lint).
//
// # Promises
//
//   - The policy holds: no inline script or style, nothing from elsewhere, no string that becomes markup (Trusted Types). Pictures of messages are fetched
//     with the token of the tab and shown from memory.
//   - Strings of other people are always set as text, never as markup.
//
// # What it does not do
//
// It checks no credential; the gateway does that on the socket.
//
// # Example
//
//	srv, err := gateway.New(gateway.Config{Dashboard: dashboard.Handler(), …}, backend, log)
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
)

//go:embed web
var embedded embed.FS

const (
	root = "/dashboard"
	// Policy is the Content-Security-Policy of every answer.
	Policy = "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
)

// file is one file of the page as it is sent.
type file struct {
	kind, tag    string
	body, zipped []byte
}

// Handler serves the page at /dashboard/ and its files below. /dashboard is redirected there. It is safe for concurrent use.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin") // the gateway serves these files to every origin, so the browser keeps them from other sites
		f, found := files[strings.TrimPrefix(r.URL.Path, root+"/")]
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this page is only read", http.StatusMethodNotAllowed)
		case r.URL.Path == root:
			h.Set("Location", "dashboard/") // set by hand: http.Redirect would make it absolute, and a proxy may serve the page below a path
			w.WriteHeader(http.StatusFound)
		case !found:
			http.Error(w, "no such file", http.StatusNotFound)
		default:
			f.send(w, r)
		}
	})
}

// load reads the embedded files and compresses each once. The page itself is the file with the empty name. Lines of modules that are comments, those with
// types among them, are a tenth of the page and are not sent. A line that begins with // is a comment everywhere: no template has one.
func load() map[string]file {
	comments := regexp.MustCompile(`(?m)^ *(//.*|/\*\*.*\*/)\n`)
	web, err := fs.Sub(embedded, "web")
	if err != nil {
		panic(err) // the directory is embedded
	}
	files := map[string]file{}
	err = fs.WalkDir(web, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".d.ts") { // types are for the type checker
			return err
		}
		body, err := fs.ReadFile(web, name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".js" && !strings.HasPrefix(name, "vendor/") {
			body = comments.ReplaceAll(body, nil)
		}
		sum := sha256.Sum256(body)
		f := file{kind: contentType(name), tag: `"` + hex.EncodeToString(sum[:12]) + `"`, body: body, zipped: zip(body)}
		if name == "index.html" {
			name = ""
		}
		files[name] = f
		return nil
	})
	if err != nil {
		panic(err)
	}
	return files
}

func zip(body []byte) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	_, _ = z.Write(body) //nolint:errcheck // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

func (f file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // a new binary must not meet an old page; an unchanged file is confirmed by its tag
	h.Set("ETag", f.tag)
	h.Add("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.body
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.zipped
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) //nolint:errcheck // the client has gone
}

// contentType does not use the host's own table: on some of them scripts are plain text, and browsers then refuse to run them.
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
		return "text/plain; charset=utf-8"
	}
}
