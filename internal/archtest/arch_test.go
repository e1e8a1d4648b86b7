package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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

// support reports whether one of our packages belongs to tests: it is called …test or test…, or it is the fake store.
func support(pkg string) bool {
	if !under(pkg, module+"/internal") && !under(pkg, module+"/cmd") {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pkg, module+"/"), "/") {
		if strings.HasSuffix(part, "test") || strings.HasPrefix(part, "test") {
			return true
		}
	}
	return under(pkg, module+"/internal/store/memory")
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

// rule is one direction that imports must keep.
type rule struct {
	name string
	// applies reports whether the rule is about a package, refuses whether the package must not import another.
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

// standard recognises the standard library: the first part of its paths has no dot. Our own module has none either.
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
		{"the vocabulary uses the standard library only", in(internal + "/chat"), func(p string) bool { return !standard(p) && !under(p, internal+"/chat") }},
		{"the scheduler uses the standard library only", in(internal + "/scheduler"), func(p string) bool { return !standard(p) && !under(p, internal+"/scheduler") }},
		{"retry knows nothing of ours", in(internal + "/retry"), oursBut(internal + "/retry")},
		{"secret knows nothing of ours", in(internal + "/secret"), oursBut(internal + "/secret")},
		{"the store's port knows the domain only", exactly(internal + "/store"), func(p string) bool {
			return !standard(p) && !in(internal+"/chat", internal+"/cron")(p)
		}},
		{"a store knows the domain and the port", adapter, oursBut(internal+"/chat", internal+"/cron", internal+"/channel", internal+"/retry", internal+"/store", module+"/migrations")},
		{"cron knows the vocabulary and retry only", cronItself, func(p string) bool {
			return under(p, internal+"/cron/service") || oursBut(internal+"/chat", internal+"/cron", internal+"/retry")(p)
		}},
		{
			"the job service knows agent, channel, chat, cron, events and the store's port only", in(internal + "/cron/service"),
			oursBut(internal+"/agent", internal+"/channel", internal+"/chat", internal+"/cron", internal+"/events", internal+"/store"),
		},
		{"schedules are arithmetic and know nothing of ours", in(internal + "/cron/schedule"), oursBut(internal + "/cron/schedule")},
		{"a runner knows agent, chat, retry and secret only", in(internal + "/agent"), oursBut(internal+"/agent", internal+"/chat", internal+"/retry", internal+"/secret")},
		{"a channel knows channel, chat and retry only", in(internal + "/channel"), oursBut(internal+"/channel", internal+"/chat", internal+"/retry")},
		{
			"the outbox knows channel, chat, retry and the store's port only", exactly(internal + "/outbox"),
			oursBut(internal+"/channel", internal+"/chat", internal+"/retry", internal+"/outbox", internal+"/store"),
		},
		{"events know chat and the store's port only", in(internal + "/events"), oursBut(internal+"/chat", internal+"/events", internal+"/store")},
		{"ownership knows chat, retry and the store's port only", in(internal + "/ownership"), oursBut(internal+"/chat", internal+"/retry", internal+"/ownership", internal+"/store")},
		{"sockets know the vocabulary only", in(internal + "/gateway/socket"), oursBut(internal+"/chat", internal+"/gateway/socket")},
		{"the configuration imports secret and nothing else of ours", in(internal + "/config"), oursBut(internal+"/config", internal+"/secret")},
		{"a part of the gateway knows agent, chat, secret, the store's port and other parts only", gatewayPart, func(p string) bool {
			return p == internal+"/gateway" || oursBut(internal+"/chat", internal+"/agent", internal+"/gateway", internal+"/secret", internal+"/store")(p)
		}},
		{"only the program and the process read the configuration", outside(module+"/cmd", internal+"/app", internal+"/config"), in(internal + "/config")},
		{"only the program imports the process", outside(module+"/cmd", internal+"/app"), in(internal + "/app")},
		{"nobody imports a program", outside(module + "/cmd"), in(module + "/cmd")},
		{"SQL lives in the stores", outside(internal+"/store", module+"/migrations"), in("database/sql", "github.com/jackc", "modernc.org/sqlite", "github.com/pressly/goose")},
		{"SQL does not live in the port", exactly(internal + "/store"), in("database/sql", "github.com/jackc", "modernc.org/sqlite", "github.com/pressly/goose")},
		{"Telegram is known to its channel only", outside(internal + "/channel/telegram"), in("github.com/go-telegram-bot-api")},
		{"only the command runner starts programs", outside(internal + "/agent/command"), exactly("os/exec")},
		{"only the process chooses runners, channels and stores", outside(module+"/cmd", internal+"/app", internal+"/agent", internal+"/channel", internal+"/store"), func(p string) bool {
			return strings.HasPrefix(p, internal+"/agent/") || strings.HasPrefix(p, internal+"/channel/") || strings.HasPrefix(p, internal+"/store/")
		}},
		{"tests' packages are imported by tests only", func(p string) bool { return !support(p) }, func(p string) bool {
			return support(p) || slices.Contains([]string{"testing", "go.uber.org/goleak", "pgregory.net/rapid"}, p)
		}},
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
	bad := map[string][2]string{
		"the vocabulary uses the standard library only":                                          {"laneway/internal/chat", "laneway/internal/store"},
		"the scheduler uses the standard library only":                                           {"laneway/internal/scheduler", "github.com/google/uuid"},
		"the store's port knows the domain only":                                                 {"laneway/internal/store", "laneway/internal/gateway"},
		"a store knows the domain and the port":                                                  {"laneway/internal/store/sqlite", "laneway/internal/dispatch"},
		"retry knows nothing of ours":                                                            {"laneway/internal/retry", "laneway/internal/chat"},
		"secret knows nothing of ours":                                                           {"laneway/internal/secret", "laneway/internal/chat"},
		"cron knows the vocabulary and retry only":                                               {"laneway/internal/cron", "laneway/internal/store"},
		"the job service knows agent, channel, chat, cron, events and the store's port only":     {"laneway/internal/cron/service", "laneway/internal/dispatch"},
		"schedules are arithmetic and know nothing of ours":                                      {"laneway/internal/cron/schedule", "laneway/internal/chat"},
		"a channel knows channel, chat and retry only":                                           {"laneway/internal/channel/telegram", "laneway/internal/dispatch"},
		"the outbox knows channel, chat, retry and the store's port only":                        {"laneway/internal/outbox", "laneway/internal/cron"},
		"events know chat and the store's port only":                                             {"laneway/internal/events", "laneway/internal/dispatch"},
		"ownership knows chat, retry and the store's port only":                                  {"laneway/internal/ownership", "laneway/internal/scheduler"},
		"a runner knows agent, chat, retry and secret only":                                      {"laneway/internal/agent/openai", "laneway/internal/config"},
		"the configuration imports secret and nothing else of ours":                              {"laneway/internal/config", "laneway/internal/chat"},
		"only the program and the process read the configuration":                                {"laneway/internal/gateway", "laneway/internal/config"},
		"only the program imports the process":                                                   {"laneway/internal/gateway", "laneway/internal/app"},
		"nobody imports a program":                                                               {"laneway/internal/app", "laneway/cmd/laneway"},
		"SQL lives in the stores":                                                                {"laneway/internal/dispatch", "database/sql"},
		"SQL does not live in the port":                                                          {"laneway/internal/store", "github.com/jackc/pgx/v5"},
		"Telegram is known to its channel only":                                                  {"laneway/internal/app", "github.com/go-telegram-bot-api/telegram-bot-api/v5"},
		"only the command runner starts programs":                                                {"laneway/internal/app", "os/exec"},
		"only the process chooses runners, channels and stores":                                  {"laneway/internal/dispatch", "laneway/internal/agent/echo"},
		"tests' packages are imported by tests only":                                             {"laneway/internal/app", "laneway/internal/store/memory"},
		"a part of the gateway knows agent, chat, secret, the store's port and other parts only": {"laneway/internal/gateway/fault", "laneway/internal/gateway"},
		"sockets know the vocabulary only":                                                       {"laneway/internal/gateway/socket", "laneway/internal/gateway/auth"},
	}
	for _, r := range rules() {
		example, given := bad[r.name]
		if !given {
			t.Errorf("no example for %q", r.name)
			continue
		}
		found := violations([]goPackage{{ImportPath: example[0], Imports: []string{example[1]}}})
		if !slices.ContainsFunc(found, func(v string) bool { return strings.HasSuffix(v, r.name) }) {
			t.Errorf("%q does not see that %s imports %s", r.name, example[0], example[1])
		}
	}
}
