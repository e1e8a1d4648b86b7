package dashboard_test

import (
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

func get(t *testing.T, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	dashboard.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestEveryAnswerCarriesThePolicy(t *testing.T) {
	t.Parallel()
	for path, status := range map[string]int{
		"/dashboard": 200, "/dashboard/": 302, "/dashboard/app.js": 200, "/dashboard/style.css": 200, "/dashboard/icon.svg": 200,
		"/dashboard/nothing": 404, "/dashboard/../dashboard.go": 404, "/dashboard/static": 404, "/dashboard/.": 404,
	} {
		w := get(t, http.MethodGet, path)
		h := w.Header()
		if w.Code != status || h.Get("Content-Security-Policy") != "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'" ||
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
		"/dashboard": "text/html; charset=utf-8", "/dashboard/rpc.js": "text/javascript; charset=utf-8",
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
	parts, err := filepath.Glob("static/*")
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
	if got := get(t, http.MethodGet, "/dashboard/").Header().Get("Location"); got != "../dashboard" {
		t.Errorf("the address with a slash leads to %q", got)
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
	err := fs.WalkDir(os.DirFS("static"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		text, err := fs.ReadFile(os.DirFS("static"), name)
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
	parts, err := filepath.Glob("static/*")
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
