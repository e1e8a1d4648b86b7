package dashboard_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/dashboard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// policy is the specified policy. It is repeated here, so that a change of the constant fails the
// test.
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
		"/dashboard/nothing": 404, "/dashboard/../dashboard.go": 404, "/dashboard/web": 404, "/dashboard/.": 404, "/dashboard/index.html": 404, "/dashboard/vendor/htm.d.ts": 404,
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

// ours returns the files of the page without the vendored ones, by name.
func ours(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS("web"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "vendor/") {
			return err
		}
		text, err := fs.ReadFile(os.DirFS("web"), name)
		files[name] = string(text)
		return err
	})
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}

// A proxy may serve the gateway below a path that the page does not know, so its addresses are
// relative.
func TestThePageNamesNoAddressFromTheRoot(t *testing.T) {
	t.Parallel()
	for name, text := range ours(t) {
		if found := regexp.MustCompile("[\"'`(]/[a-z][a-z0-9/.]*|location\\.host").FindString(text); found != "" {
			t.Errorf("%s: %s", name, found)
		}
	}
	if got := get(t, http.MethodGet, "/dashboard").Header().Get("Location"); got != "dashboard/" {
		t.Errorf("the address without a slash leads to %q", got)
	}
}

// The vendored modules are unchanged: vendor/README.md has their sums. The type checker uses the
// types of the same versions.
func TestVendoredModulesAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("web/vendor/README.md")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.ReadFile("../../ui-test/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("web/vendor/*.js")
	if err != nil || len(names) != 6 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(filepath.Base(name)) + "` \\| `(.*?)` \\| (.*?) \\| .* ([0-9a-f]{64}) \\|$").FindSubmatch(table)
		if sum := sha256.Sum256(body); row == nil || string(row[3]) != hex.EncodeToString(sum[:]) {
			t.Fatalf("%s has the sum %x, the table %s", name, sum, row)
		}
		if pin := fmt.Sprintf("\"node_modules/%s\": {\n      \"version\": \"%s\"", row[1], row[2]); !strings.Contains(string(lock), pin) {
			t.Errorf("ui-test/package-lock.json lacks %s", pin)
		}
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

func TestCommentsAreNotSent(t *testing.T) {
	t.Parallel()
	for name, text := range ours(t) {
		if path.Ext(name) != ".js" {
			continue
		}
		sent := get(t, http.MethodGet, "/dashboard/"+name).Body.String()
		if found := regexp.MustCompile(`(?m)^\s*//.*|/\*\* @.*|^ .*`).FindString(sent); found != "" || len(sent) == len(text) {
			t.Errorf("%s is sent with %d of %d bytes: %q", name, len(sent), len(text), found)
		}
	}
}

// A violation of the policy fails silently in a browser, and the policy does not cover everything,
// so the test searches the files.
func TestFilesKeepToThePolicy(t *testing.T) {
	t.Parallel()
	bad := map[string]*regexp.Regexp{
		"an inline script":          regexp.MustCompile(`<script(?:>|[^>]*[^>"]>[^<])`),
		"an inline style":           regexp.MustCompile(`<style|[^-]\bstyle\s*=|\.style\b|cssText`),
		"an inline handler":         regexp.MustCompile(`<[^>]*\son[a-z]+\s*=\s*"`),
		"a string that is markup":   regexp.MustCompile(`nnerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`),
		"another origin":            regexp.MustCompile(`https?://(?:[a-z])`),
		"a cookie or a database":    regexp.MustCompile(`document\.cookie|indexedDB`),
		"an address from the query": regexp.MustCompile(`location\.search|searchParams`),
	}
	for name, text := range ours(t) {
		body := strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")
		for what, pattern := range bad {
			if found := pattern.FindString(body); found != "" {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
		if strings.Contains(body, "localStorage") && name != "preferences.js" || strings.Contains(body, "sessionStorage") && name != "store.js" {
			t.Errorf("%s has a storage that another module owns", name)
		}
		if strings.Contains(body, "WebSocket(") && name != "rpc.js" {
			t.Errorf("%s opens a socket", name)
		}
		if lines := strings.Count(body, "\n"); strings.HasSuffix(name, ".js") && lines > 300 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}

// A verdict of cron.explain without its own mark would look like a warning.
func TestEveryAnswerAboutASlotHasAMark(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../cron/explain.go")
	if err != nil {
		t.Fatal(err)
	}
	answers := regexp.MustCompile(`(?m)^\tWhy\w+ +Why = ("[^"]+")`).FindAllSubmatch(source, -1)
	if len(answers) < 20 {
		t.Fatalf("%d answers", len(answers))
	}
	page := ours(t)["pages/why.js"]
	for _, a := range answers {
		if !strings.Contains(page, string(a[1])+": ") {
			t.Errorf("%s has no mark", a[1])
		}
	}
}

// The page with everything that the overview needs has a budget of 80 KB, compressed. Markdown and
// the form of a job are loaded on demand.
func TestThePageKeepsToItsSize(t *testing.T) {
	t.Parallel()
	total := 0
	later := []string{"vendor/marked.js", "jobdraft.js", "pages/jobask.js", "pages/jobform.js"}
	err := fs.WalkDir(os.DirFS("web"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "vendor/LICENSE") || strings.HasSuffix(name, ".d.ts") || name == "index.html" || slices.Contains(later, name) {
			return err
		}
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/dashboard/"+name, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		dashboard.Handler().ServeHTTP(w, r)
		total += w.Body.Len()
		return nil
	})
	if err != nil || total < 10_000 || total > 80*1024 {
		t.Errorf("%d bytes, %v", total, err)
	}
}

// The checks in compat and ui-test do not run with every change, so they would detect a renamed
// element only much later.
func TestTheBrowserChecksNameElementsOfThePage(t *testing.T) {
	t.Parallel()
	var checks []string
	for _, pattern := range []string{"../../compat/dashboard*.mjs", "../../ui-test/*.mjs"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no checks (%v)", pattern, err)
		}
		checks = append(checks, found...)
	}
	var page strings.Builder
	for _, text := range ours(t) {
		page.WriteString(text)
	}
	selector := regexp.MustCompile(`[^=]["']#([a-z-]+)["' ]`)
	named := 0
	for _, name := range checks {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range selector.FindAllStringSubmatch(string(text), -1) {
			named++
			if !strings.Contains(page.String(), `id="`+m[1]+`"`) {
				t.Errorf("%s names #%s, which the page does not have", name, m[1])
			}
		}
	}
	if named < 10 {
		t.Errorf("%d elements are named", named)
	}
}
