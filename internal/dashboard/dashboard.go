// Package dashboard serves the page on which a person sees what the gateway does and writes to its
// agents.
//
// # Ideas
//
// The page is static. The files are embedded and hold no data: no version, no host, no name. They
// reveal nothing to a client without a token. Everything that the page shows comes over the public
// WebSocket protocol with the credential of its user, so it can do nothing that another client of
// that user could not do.
//
// It connects only to its own origin and accepts no other address. The person enters the token, or
// the page takes it from the fragment of the URL (`#token=…`), which never leaves the browser, and
// removes it there. A token from a link is used only after the person has seen the name of its
// credential and has confirmed it. The token is kept in session storage, which ends with the tab.
//
// All addresses are relative to the page, which is at /dashboard/: a proxy may serve it below any
// path, and the gateway does not know that path.
//
// web has one module for each page, ui has the parts that pages share, store.js holds the state as
// signals, and only rpc.js uses the socket. vendor has Preact as published, see vendor/README.md,
// so no build step is needed. types has the types of the protocol, generated from the table of
// methods, with which the type checker of TypeScript checks the modules (make lint).
//
// # Guarantees
//
//   - The page works under its Content-Security-Policy: no inline script or style, nothing from
//     other origins, no string that becomes markup (Trusted Types). Pictures of messages are
//     fetched with the token of the tab and shown from memory.
//   - Strings from other people are always set as text, never as markup.
//
// # What it does not do
//
// It does not check credentials; the gateway does that on the socket.
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

// file is one file of the page in the form in which it is sent.
type file struct {
	kind, tag    string
	body, zipped []byte
}

// Handler serves the page at /dashboard/ and its files below. It redirects /dashboard to
// /dashboard/. It is safe for concurrent use.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin") // the gateway answers requests of every origin; the browser refuses these files to other sites
		f, found := files[strings.TrimPrefix(r.URL.Path, root+"/")]
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this page is only read", http.StatusMethodNotAllowed)
		case r.URL.Path == root:
			h.Set("Location", "dashboard/") // not by http.Redirect, which makes it absolute: a proxy may serve the page below a path
			w.WriteHeader(http.StatusFound)
		case !found:
			http.Error(w, "no such file", http.StatusNotFound)
		default:
			f.send(w, r)
		}
	})
}

// load reads the embedded files and compresses each once. The page itself is the file with the
// empty name. Comments of modules, types among them, and indentation are a sixth of the page and
// are not sent. Every line that begins with // is a comment, because no template contains such a
// line, and htm drops the indentation of its templates as well.
func load() map[string]file {
	comments := regexp.MustCompile(`(?m)^ *(//.*|/\*\*.*\*/)\n|^ +|/\*\* [^*]*\*/ ?| // [^"'\x60\n]*$`)
	web, err := fs.Sub(embedded, "web")
	if err != nil {
		panic(err) // the directory is embedded
	}
	files := map[string]file{}
	err = fs.WalkDir(web, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".d.ts") { // types are only for the type checker
			return err
		}
		body, err := fs.ReadFile(web, name)
		if err != nil {
			return err
		}
		if (path.Ext(name) == ".js" || path.Ext(name) == ".css") && !strings.HasPrefix(name, "vendor/") {
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
	_, _ = z.Write(body) // a buffer never fails
	_ = z.Close()
	return out.Bytes()
}

func (f file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache") // an old page must not run against a new binary; an unchanged file is confirmed by its tag
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
	_, _ = w.Write(body) // the client has disconnected
}

// contentType does not use the table of the host, because some hosts map scripts to plain text,
// which browsers refuse to run.
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
