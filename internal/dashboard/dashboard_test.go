package dashboard_test

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/dashboard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// policy is that of the specification, written out: a change of the constant must not change what is expected.
const policy = "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

func get(t *testing.T, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	dashboard.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestEveryAnswerCarriesThePolicy(t *testing.T) {
	t.Parallel()
	for path, status := range map[string]int{
		"/dashboard": 302, "/dashboard/": 200, "/dashboard/app.js": 200, "/dashboard/style.css": 200, "/dashboard/icon.svg": 200,
		"/dashboard/nothing": 404, "/dashboard/../dashboard.go": 404, "/dashboard/web": 404, "/dashboard/.": 404, "/dashboard/index.html": 404,
	} {
		w := get(t, http.MethodGet, path)
		h := w.Header()
		if w.Code != status || h.Get("Content-Security-Policy") != policy ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
	}
	if w := get(t, http.MethodPost, "/dashboard"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

func TestBrowsersGetTheKindsOfFilesThatTheyInsistOn(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/dashboard/": "text/html; charset=utf-8", "/dashboard/rpc.js": "text/javascript; charset=utf-8",
		"/dashboard/style.css": "text/css; charset=utf-8", "/dashboard/icon.svg": "image/svg+xml",
	} {
		if got := get(t, http.MethodGet, path).Header().Get("Content-Type"); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// A proxy may serve the gateway below a path, which the page does not know: its addresses are relative to its own.
func TestThePageNamesNoAddressFromTheRoot(t *testing.T) {
	t.Parallel()
	parts, err := filepath.Glob("web/*")
	if err != nil || len(parts) == 0 {
		t.Fatalf("no files (%v)", err)
	}
	for _, name := range parts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile("[\"'`(]/[a-z][a-z0-9/.]*|location\\.host").Find(text); found != nil {
			t.Errorf("%s: %s", name, found)
		}
	}
	if got := get(t, http.MethodGet, "/dashboard").Header().Get("Location"); got != "dashboard/" {
		t.Errorf("the address without a slash leads to %q", got)
	}
}

func TestAFileIsCompressedOnceAndConfirmedByItsTag(t *testing.T) {
	t.Parallel()
	ask := func(headers ...string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/dashboard/style.css", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		dashboard.Handler().ServeHTTP(w, r)
		return w
	}
	plain, zipped := ask(), ask("Accept-Encoding", "gzip, br")
	if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Body.Len() > plain.Body.Len()/2 || zipped.Header().Get("Vary") != "Accept-Encoding" {
		t.Errorf("%d bytes of %d, %v", zipped.Body.Len(), plain.Body.Len(), zipped.Header())
	}
	z, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(z); err != nil || string(body) != plain.Body.String() {
		t.Errorf("the compressed file differs: %v", err)
	}
	tag := plain.Header().Get("ETag")
	if again := ask("If-None-Match", tag); tag == "" || again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("tag %q: %d with %d bytes", tag, again.Code, again.Body.Len())
	}
	if other := ask("If-None-Match", `"other"`); other.Code != http.StatusOK {
		t.Errorf("another tag: %d", other.Code)
	}
}

// What the policy forbids would fail in silence in a browser; what it cannot see is looked for here.
func TestFilesKeepToThePolicy(t *testing.T) {
	t.Parallel()
	bad := map[string]*regexp.Regexp{
		"an inline script":          regexp.MustCompile(`<script(?:>|[^>]*[^>"]>[^<])`),
		"an inline style":           regexp.MustCompile(`<style|[^-]\bstyle\s*=|\.style\b|cssText`),
		"an inline handler":         regexp.MustCompile(`<[^>]*\son[a-z]+\s*=\s*"`),
		"text that becomes markup":  regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`),
		"another origin":            regexp.MustCompile(`https?://(?:[a-z])`),
		"a storage beyond the tab":  regexp.MustCompile(`localStorage|document\.cookie|indexedDB`),
		"an address from the query": regexp.MustCompile(`location\.search|searchParams`),
	}
	seen := 0
	err := fs.WalkDir(os.DirFS("web"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		text, err := fs.ReadFile(os.DirFS("web"), name)
		body := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		for what, pattern := range bad {
			if found := pattern.FindString(body); found != "" {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
		return err
	})
	if err != nil || seen < 8 {
		t.Errorf("%d files, %v", seen, err)
	}
}

// TestTheBrowserChecksNameElementsOfThePage: the checks in compat/ run by hand, so that a renamed element would be noticed there only much later.
func TestTheBrowserChecksNameElementsOfThePage(t *testing.T) {
	t.Parallel()
	checks, err := filepath.Glob("../../compat/dashboard*.mjs")
	if err != nil || len(checks) == 0 {
		t.Fatalf("no checks (%v)", err)
	}
	var page strings.Builder
	parts, err := filepath.Glob("web/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range parts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page.Write(text)
	}
	selector := regexp.MustCompile(`[^=]["']#([a-z-]+)["' ]`) // not the addresses of views, as in href="#jobs"
	for _, name := range checks {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := selector.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no element", name)
		}
		for _, m := range found {
			if !strings.Contains(page.String(), `id="`+m[1]+`"`) {
				t.Errorf("%s names #%s, which the page does not have", name, m[1])
			}
		}
	}
}
