package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "laneway"

// goPackage is the part of the output of `go list` that the tests use.
type goPackage struct {
	ImportPath string
	Name       string
	Dir        string
	Imports    []string
	GoFiles    []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Name,Dir,Imports,GoFiles"}, args...)...)
	command.Dir = "../.."
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var all []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// under reports whether a package is path or lies below it.
func under(pkg, path string) bool { return pkg == path || strings.HasPrefix(pkg, path+"/") }

// support reports whether one of our packages belongs to tests: it is called …test or test….
func support(pkg string) bool {
	if !under(pkg, module+"/internal") && !under(pkg, module+"/cmd") {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pkg, module+"/"), "/") {
		if strings.HasSuffix(part, "test") || strings.HasPrefix(part, "test") {
			return true
		}
	}
	return false
}

func TestTheProgramLinksNothingOfTests(t *testing.T) {
	t.Parallel()
	linked := list(t, "-deps", "./cmd/laneway")
	if len(linked) < 50 {
		t.Fatalf("go list names %d packages; that is not the program", len(linked))
	}
	foreign := []string{"testing", "testing/synctest", "net/http/httptest", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp/cmp", "github.com/rogpeppe/go-internal/testscript"}
	for _, p := range linked {
		if support(p.ImportPath) || slices.Contains(foreign, p.ImportPath) {
			t.Errorf("the program links %s, which is for tests only", p.ImportPath)
		}
	}
}

// imports is one import: package from imports package to.
type imports struct{ from, to string }

// rule is one direction that imports must keep.
type rule struct {
	name string
	// example is an import that the rule refuses. It proves that the rule can fail.
	example imports
	// applies reports whether the rule is about a package, refuses whether the package must not
	// import another.
	applies, refuses func(pkg string) bool
}

func in(paths ...string) func(string) bool {
	return func(pkg string) bool {
		return slices.ContainsFunc(paths, func(path string) bool { return under(pkg, path) })
	}
}

func outside(paths ...string) func(string) bool {
	inside := in(paths...)
	return func(pkg string) bool { return !inside(pkg) && !support(pkg) }
}

// ours below, but not the listed ones.
func oursBut(paths ...string) func(string) bool {
	allowed := in(paths...)
	return func(pkg string) bool { return under(pkg, module) && !allowed(pkg) }
}

// standard recognises the standard library: the first part of its paths has no dot. Our own module
// has none either.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".") && !under(pkg, module)
}

func exactly(path string) func(string) bool { return func(pkg string) bool { return pkg == path } }

func rules() []rule {
	const internal = module + "/internal"
	adapter := func(pkg string) bool { return strings.HasPrefix(pkg, internal+"/store/") && !support(pkg) }
	cronItself := func(pkg string) bool { return under(pkg, internal+"/cron") && !under(pkg, internal+"/cron/service") }
	gatewayPart := func(pkg string) bool {
		return strings.HasPrefix(pkg, internal+"/gateway/") && !under(pkg, internal+"/gateway/gendoc")
	}
	return []rule{
		{
			name: "the vocabulary uses the standard library only", example: imports{"laneway/internal/chat", "laneway/internal/store"},
			applies: in(internal + "/chat"),
			refuses: func(p string) bool { return !standard(p) && !under(p, internal+"/chat") },
		},
		{
			name: "the scheduler uses the standard library only", example: imports{"laneway/internal/scheduler", "github.com/google/uuid"},
			applies: in(internal + "/scheduler"),
			refuses: func(p string) bool { return !standard(p) && !under(p, internal+"/scheduler") },
		},
		{
			name: "the protocol uses the vocabulary and the standard library only", example: imports{"laneway/internal/wire", "laneway/internal/cron"},
			applies: exactly(internal + "/wire"),
			refuses: func(p string) bool { return !standard(p) && !under(p, internal+"/chat") },
		},
		{
			name: "schemas use the standard library only", example: imports{"laneway/internal/wire/schema", "laneway/internal/wire"},
			applies: exactly(internal + "/wire/schema"),
			refuses: func(p string) bool { return !standard(p) },
		},
		{
			name: "metrics know no part", example: imports{"laneway/internal/metrics", "laneway/internal/chat"},
			applies: in(internal + "/metrics"),
			refuses: oursBut(internal + "/metrics"),
		},
		{
			name: "usage knows the vocabulary only", example: imports{"laneway/internal/usage", "laneway/internal/store"},
			applies: in(internal + "/usage"),
			refuses: oursBut(internal+"/usage", internal+"/chat", internal+"/metrics"),
		},
		{
			name: "retry knows nothing of ours", example: imports{"laneway/internal/retry", "laneway/internal/chat"},
			applies: in(internal + "/retry"),
			refuses: oursBut(internal + "/retry"),
		},
		{
			name: "words know the normal forms of Unicode and nothing of ours", example: imports{"laneway/internal/words", "laneway/internal/store"},
			applies: in(internal + "/words"),
			refuses: func(p string) bool { return !standard(p) && p != "golang.org/x/text/unicode/norm" },
		},
		{
			name: "history knows agent, chat, retry and the store's port only", example: imports{"laneway/internal/history", "laneway/internal/dispatch"},
			applies: in(internal + "/history"),
			refuses: oursBut(internal+"/history", internal+"/agent", internal+"/chat", internal+"/retry", internal+"/store"),
		},
		{
			name: "secret knows nothing of ours", example: imports{"laneway/internal/secret", "laneway/internal/chat"},
			applies: in(internal + "/secret"),
			refuses: oursBut(internal + "/secret"),
		},
		{
			name: "signatures use the standard library only", example: imports{"laneway/internal/signature", "laneway/internal/secret"},
			applies: exactly(internal + "/signature"),
			refuses: func(p string) bool { return !standard(p) },
		},
		{
			name: "the store's port knows the domain only", example: imports{"laneway/internal/store", "laneway/internal/gateway"},
			applies: exactly(internal + "/store"),
			refuses: func(p string) bool {
				return !standard(p) && !in(internal+"/chat", internal+"/cron", internal+"/scheduler", internal+"/words")(p)
			},
		},
		{
			name: "a copy of a store uses the standard library only", example: imports{"laneway/internal/store/transfer", "laneway/internal/store"},
			applies: exactly(internal + "/store/transfer"),
			refuses: func(p string) bool { return !standard(p) },
		},
		{
			name: "a store knows the domain and the port", example: imports{"laneway/internal/store/sqlite", "laneway/internal/dispatch"},
			applies: adapter,
			refuses: oursBut(internal+"/chat", internal+"/cron", internal+"/channel", internal+"/retry", internal+"/scheduler", internal+"/store", internal+"/store/sqlstore", internal+"/usage", module+"/migrations", internal+"/words"),
		},
		{
			name: "cron knows the vocabulary, retry and words only", example: imports{"laneway/internal/cron", "laneway/internal/store"},
			applies: cronItself,
			refuses: func(p string) bool {
				return under(p, internal+"/cron/service") || oursBut(internal+"/chat", internal+"/cron", internal+"/retry", internal+"/words")(p)
			},
		},
		{
			name:    "the job service knows agent, channel, chat, cron, events and the store's port only",
			example: imports{"laneway/internal/cron/service", "laneway/internal/dispatch"},
			applies: in(internal + "/cron/service"),
			refuses: oursBut(internal+"/agent", internal+"/channel", internal+"/chat", internal+"/cron", internal+"/events", internal+"/metrics", internal+"/store"),
		},
		{
			name: "schedules are arithmetic and know words alone", example: imports{"laneway/internal/cron/schedule", "laneway/internal/chat"},
			applies: in(internal + "/cron/schedule"),
			refuses: oursBut(internal+"/cron/schedule", internal+"/words"),
		},
		{
			name: "a runner knows agent, chat, process, retry, secret and signature only", example: imports{"laneway/internal/agent/openai", "laneway/internal/config"},
			applies: in(internal + "/agent"),
			refuses: oursBut(internal+"/agent", internal+"/chat", internal+"/process", internal+"/retry", internal+"/secret", internal+"/signature"),
		},
		{
			name: "a channel knows channel, chat, retry and signature only", example: imports{"laneway/internal/channel/telegram", "laneway/internal/dispatch"},
			applies: in(internal + "/channel"),
			refuses: oursBut(internal+"/channel", internal+"/chat", internal+"/metrics", internal+"/retry", internal+"/signature"),
		},
		{
			name: "the outbox knows channel, chat, retry and the store's port only", example: imports{"laneway/internal/outbox", "laneway/internal/cron"},
			applies: exactly(internal + "/outbox"),
			refuses: oursBut(internal+"/metrics", internal+"/channel", internal+"/chat", internal+"/retry", internal+"/outbox", internal+"/store"),
		},
		{
			name: "events know chat, retry and the store's port only", example: imports{"laneway/internal/events", "laneway/internal/dispatch"},
			applies: in(internal + "/events"),
			refuses: oursBut(internal+"/chat", internal+"/events", internal+"/retry", internal+"/store"),
		},
		{
			name: "ownership knows chat, retry and the store's port only", example: imports{"laneway/internal/ownership", "laneway/internal/scheduler"},
			applies: in(internal + "/ownership"),
			refuses: oursBut(internal+"/chat", internal+"/metrics", internal+"/retry", internal+"/ownership", internal+"/store"),
		},
		{
			name: "what is in flight knows nothing of ours", example: imports{"laneway/internal/gateway/inflight", "laneway/internal/chat"},
			applies: in(internal + "/gateway/inflight"),
			refuses: oursBut(internal + "/gateway/inflight"),
		},
		{
			name: "sockets know the vocabulary only", example: imports{"laneway/internal/gateway/socket", "laneway/internal/gateway/auth"},
			applies: in(internal + "/gateway/socket"),
			refuses: oursBut(internal+"/chat", internal+"/gateway/socket"),
		},
		{
			name: "the configuration imports schedule, secret and words alone", example: imports{"laneway/internal/config", "laneway/internal/chat"},
			applies: in(internal + "/config"),
			refuses: oursBut(internal+"/config", internal+"/cron/schedule", internal+"/secret", internal+"/words"),
		},
		{
			name: "a part of the gateway knows the domain, the port, the protocol, retry and other parts only", example: imports{"laneway/internal/gateway/fault", "laneway/internal/gateway"},
			applies: gatewayPart,
			refuses: func(p string) bool {
				return p == internal+"/gateway" || oursBut(internal+"/chat", internal+"/metrics", internal+"/agent", internal+"/gateway", internal+"/secret", internal+"/signature", internal+"/store", internal+"/wire", internal+"/cron", internal+"/channel", internal+"/retry", internal+"/words")(p)
			},
		},
		{
			name: "only the command line and the process read the configuration", example: imports{"laneway/internal/gateway", "laneway/internal/config"},
			applies: outside(internal+"/cli", internal+"/app", internal+"/config"),
			refuses: in(internal + "/config"),
		},
		{
			name: "only the command line imports the process", example: imports{"laneway/internal/gateway", "laneway/internal/app"},
			applies: outside(internal+"/cli", internal+"/app"),
			refuses: in(internal + "/app"),
		},
		{
			name: "no package imports a program", example: imports{"laneway/internal/app", "laneway/cmd/laneway"},
			applies: outside(module + "/cmd"),
			refuses: in(module + "/cmd"),
		},
		{
			name: "only the program imports the command line", example: imports{"laneway/internal/app", "laneway/internal/cli"},
			applies: outside(module+"/cmd", internal+"/cli"),
			refuses: in(internal + "/cli"),
		},
		{
			name: "SQL lives in the stores", example: imports{"laneway/internal/dispatch", "database/sql"},
			applies: outside(internal+"/store", module+"/migrations"),
			refuses: in("database/sql", "github.com/jackc", "modernc.org/sqlite", "zombiezen.com/go/sqlite", "github.com/pressly/goose"),
		},
		{
			name: "SQL does not live in the port", example: imports{"laneway/internal/store", "github.com/jackc/pgx/v5"},
			applies: exactly(internal + "/store"),
			refuses: in("database/sql", "github.com/jackc", "modernc.org/sqlite", "zombiezen.com/go/sqlite", "github.com/pressly/goose"),
		},
		{
			name: "the operations of the store know no driver", example: imports{"laneway/internal/store/sqlstore", "github.com/jackc/pgx/v5"},
			applies: exactly(internal + "/store/sqlstore"),
			refuses: in("github.com/jackc", "modernc.org/sqlite", "zombiezen.com/go/sqlite", "github.com/pressly/goose"),
		},
		{
			name: "Telegram is known to its channel only", example: imports{"laneway/internal/app", "github.com/go-telegram-bot-api/telegram-bot-api/v5"},
			applies: outside(internal + "/channel/telegram"),
			refuses: in("github.com/go-telegram-bot-api"),
		},
		{
			name: "the Agent Client Protocol is known to its runner only", example: imports{"laneway/internal/app", "github.com/coder/acp-go-sdk"},
			applies: outside(internal + "/agent/acp"),
			refuses: in("github.com/coder/acp-go-sdk"),
		},
		{
			name: "only retry waits between attempts", example: imports{"laneway/internal/agent/internal/modelhttp", "github.com/cenkalti/backoff/v5"},
			applies: outside(internal + "/retry"),
			refuses: in("github.com/cenkalti/backoff"),
		},
		{
			name: "only the package process starts programs", example: imports{"laneway/internal/agent/command", "os/exec"},
			applies: outside(internal + "/process"),
			refuses: exactly("os/exec"),
		},
		{
			name: "process knows chat and secret only", example: imports{"laneway/internal/process", "laneway/internal/agent"},
			applies: in(internal + "/process"),
			refuses: oursBut(internal+"/chat", internal+"/process", internal+"/secret"),
		},
		{
			name: "tools know the services by interfaces only", example: imports{"laneway/internal/tool", "laneway/internal/dispatch"},
			applies: func(p string) bool { return under(p, internal+"/tool") && !under(p, internal+"/tool/external") },
			refuses: oursBut(internal+"/agent", internal+"/chat", internal+"/command", internal+"/cron", internal+"/store", internal+"/tool", internal+"/words"),
		},
		{
			name: "tools of other servers know no service", example: imports{"laneway/internal/tool/external", "laneway/internal/store"},
			applies: in(internal + "/tool/external"),
			refuses: oursBut(internal+"/agent", internal+"/chat", internal+"/process", internal+"/retry", internal+"/secret", internal+"/tool"),
		},
		{
			name: "MCP is spoken at its borders only", example: imports{"laneway/internal/dispatch", "github.com/modelcontextprotocol/go-sdk/mcp"},
			applies: outside(internal+"/cli", internal+"/gateway/mcp", internal+"/tool/external", internal+"/teste2e", module+"/docs/examples"),
			refuses: in("github.com/modelcontextprotocol"),
		},
		{
			name: "only the process chooses runners, channels and stores", example: imports{"laneway/internal/dispatch", "laneway/internal/agent/echo"},
			applies: outside(internal+"/app", internal+"/agent", internal+"/channel", internal+"/store"),
			refuses: func(p string) bool {
				return strings.HasPrefix(p, internal+"/agent/") || strings.HasPrefix(p, internal+"/channel/") || strings.HasPrefix(p, internal+"/store/")
			},
		},
		{
			name: "tests' packages are imported by tests only", example: imports{"laneway/internal/app", "laneway/internal/store/sqlite/sqlitetest"},
			applies: func(p string) bool { return !support(p) },
			refuses: func(p string) bool {
				return support(p) || slices.Contains([]string{"testing", "go.uber.org/goleak", "pgregory.net/rapid"}, p)
			},
		},
	}
}

// violations are the imports of the packages that go against a rule.
func violations(all []goPackage) []string {
	var found []string
	for _, p := range all {
		for _, r := range rules() {
			for _, imported := range p.Imports {
				if r.applies(p.ImportPath) && r.refuses(imported) {
					found = append(found, p.ImportPath+" imports "+imported+": "+r.name)
				}
			}
		}
	}
	return found
}

func TestImportsKeepTheirDirection(t *testing.T) {
	t.Parallel()
	all := list(t, "./...")
	if len(all) < 5 {
		t.Fatalf("go list names %d packages; that is not the module", len(all))
	}
	for _, v := range violations(all) {
		t.Error(v)
	}
}

// TestEachRuleCanFail makes sure that no rule is written so that it never applies.
func TestEachRuleCanFail(t *testing.T) {
	t.Parallel()
	for _, r := range rules() {
		found := violations([]goPackage{{ImportPath: r.example.from, Imports: []string{r.example.to}}})
		if !slices.ContainsFunc(found, func(v string) bool { return strings.HasSuffix(v, r.name) }) {
			t.Errorf("%q does not see that %s imports %s", r.name, r.example.from, r.example.to)
		}
	}
}

// revealers are the files that may take the text out of a secret, each with its reason. They pass
// it only to the code that needs it: a comparison, a request header, a database driver, the log
// handler that replaces it.
func revealers() map[string]string {
	return map[string]string{
		"internal/gateway/hook/hook.go":  "checks signatures",
		"internal/config/network.go":     "reads the address of the database and shows it without its password",
		"internal/config/secretfile.go":  "writes a generated token into its file",
		"internal/config/resolve.go":     "counts characters",
		"internal/config/preflight.go":   "counts characters",
		"internal/cli/access.go":         "shows a new secret to the person who made it",
		"internal/cli/dashboard.go":      "writes the link into the page that only the user reads, or prints it on request",
		"internal/cli/logger.go":         "hides secrets in the log",
		"internal/tool/external/link.go": "sends the token of a server to its address",
	}
}

// mayReveal reports whether the purpose of a file is to pass secrets on: the process gives each
// part its own, a runner sends its key to its provider, and the client its credential to the
// gateway.
func mayReveal(path string) bool {
	return strings.HasPrefix(path, "internal/app/") || strings.HasPrefix(path, "internal/agent/") || path == "internal/cli/target.go"
}

func TestSecretsAreRevealedInKnownPlacesOnly(t *testing.T) {
	t.Parallel()
	known := revealers()
	var seen []string
	for _, p := range list(t, "./...") {
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			relative := path[strings.LastIndex(path, "/"+relativeDir(p))+1:]
			if !callsReveal(t, path) || mayReveal(relative) {
				continue
			}
			seen = append(seen, relative)
			if known[relative] == "" {
				t.Errorf("%s calls Reveal and is not on the list", relative)
			}
		}
	}
	for path := range known {
		if !slices.Contains(seen, path) {
			t.Errorf("%s is on the list and does not call Reveal", path)
		}
	}
}

func relativeDir(p goPackage) string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func callsReveal(t *testing.T, path string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Reveal" {
				found = true
			}
		}
		return !found
	})
	return found
}

// phrases are what comments and documents do not use, because a reader has to translate it. Each
// has what to write instead.
func phrases() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"does not exist, no X exists, nil when": regexp.MustCompile(`([^e]|[^r]e) (is|are|was|were|be) none\b`), // there is none,
		"has ended, has passed, is closed":      regexp.MustCompile(`\b(is|are|was|were|be) over[.,;:)]`),
		"again, from the start":                 regexp.MustCompile(`\banew\b`),
		"the beginning, the start":              regexp.MustCompile(`\bthe begin\b`),
		"after":                                 regexp.MustCompile(`\bbehind (them|those|each|every|the (first|last|end|commit|answer|message|messages|rows?))\b`),
	}
}

// productFiles parses the files of a package that are shipped, those for other systems included.
func productFiles(t *testing.T, fset *token.FileSet, p goPackage) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.IsGenerated(file) {
			files = append(files, file)
		}
	}
	return files
}

func TestCommentsAndDocumentsUseNoTranslatedPhrase(t *testing.T) {
	t.Parallel()
	comments := 0
	check := func(place, text string) {
		for instead, phrase := range phrases() {
			if at := phrase.FindStringIndex(text); at != nil {
				t.Errorf("%s: …%s… (write: %s)", place, text[max(0, at[0]-40):min(len(text), at[1]+20)], instead)
			}
		}
	}
	for _, p := range list(t, "./...") {
		fset := token.NewFileSet()
		for _, file := range productFiles(t, fset, p) {
			for _, group := range file.Comments {
				comments++
				at := fset.Position(group.Pos())
				check(fmt.Sprintf("%s/%s:%d", relativeDir(p), filepath.Base(at.Filename), at.Line), strings.Join(strings.Fields(group.Text()), " "))
			}
		}
	}
	if comments < 5_000 {
		t.Errorf("the product has %d comments; that is not all of them", comments)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages: %q, %v", pages, err)
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../AGENTS.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			check(filepath.Base(page), line)
		}
	}
}
