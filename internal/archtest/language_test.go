package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// banned are words that names and log messages of the product do not use: metaphors, persons for processes, and speech for data. Each is
// lower case; a name is split at its capitals first. The silence of a model (`silence_timeout`, reason `silence`) is a word of the wire and stays.
func banned() []string {
	return []string{
		"house", "houses", "door", "doors", "porch", "entrance", "crowd", "stranger", "strangers", "news", "company", "silences",
		"grave", "graves", "bury", "buried", "condemn", "condemned", "behead", "fate", "fates", "aboard", "depart", "heed", "heeds",
		"rightful", "blameless", "spared", "soon", "somebody", "nobody", "whoever", "anybody", "everybody",
		"tell", "tells", "told", "telling", "hear", "hears", "heard", "hearing", "say", "says", "said", "saying",
	}
}

// legacyNames bounds how many names and log messages with a banned word a package has, those below it included unless they are listed
// themselves. A package that is not listed has none. The figures only ever go down; a package whose figure is 0 leaves the list.
func legacyNames() map[string]int {
	return map[string]int{
		"internal/channel/telegram": 1,
	}
}

// legacyComments are packages whose comments are not revised yet, those below them included. All others keep the two ratios of [maxPersons] and
// [maxTells]. The list only ever gets shorter.
func legacyComments() []string {
	return []string{}
}

// Bounds per 1,000 words of comment, as cmd/structure counts them. A package of fewer words may use one form of
// tell, hear and say, as for a word that it quotes, and no person.
const (
	maxPersons = 0.3
	maxTells   = 1.0
)

// use is one place where a banned word stands.
type use struct{ place, word, text string }

// wordsOf splits a name at its capitals: "HTTPServerTold" has http, server and told.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	start := 0
	cut := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i := 1; i < len(runes); i++ {
		lowerThenUpper := unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1])
		endOfInitialism := unicode.IsUpper(runes[i-1]) && unicode.IsUpper(runes[i]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if lowerThenUpper || endOfInitialism || runes[i] == '_' {
			cut(i)
		}
		if runes[i] == '_' {
			start = i + 1
		}
	}
	cut(len(runes))
	return words
}

var letters = regexp.MustCompile(`[A-Za-z']+`)

// bannedUses finds the banned words in what a file declares and in the constant messages of its log calls.
func bannedUses(fset *token.FileSet, file *ast.File) (found []use) {
	words := banned()
	look := func(at token.Pos, text string, parts []string) {
		for _, w := range parts {
			if slices.Contains(words, w) {
				p := fset.Position(at)
				found = append(found, use{place: fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line), word: w, text: text})
			}
		}
	}
	for _, id := range declared(file) {
		look(id.Pos(), id.Name, wordsOf(id.Name))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if message, ok := logMessage(call); ok {
				look(call.Pos(), message, letters.FindAllString(strings.ToLower(message), -1))
			}
		}
		return true
	})
	return found
}

// declared lists the names that a file declares: its package, constants, variables, types, functions, fields, methods, parameters and results.
func declared(file *ast.File) (names []*ast.Ident) {
	names = append(names, file.Name)
	ast.Inspect(file, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name)
		case *ast.TypeSpec:
			names = append(names, d.Name)
		case *ast.ValueSpec:
			names = append(names, d.Names...)
		case *ast.Field:
			names = append(names, d.Names...)
		case *ast.AssignStmt:
			if d.Tok == token.DEFINE {
				for _, left := range d.Lhs {
					if id, ok := left.(*ast.Ident); ok {
						names = append(names, id)
					}
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{d.Key, d.Value} {
				if id, ok := e.(*ast.Ident); ok && d.Tok == token.DEFINE {
					names = append(names, id)
				}
			}
		}
		return true
	})
	return names
}

// logMessage returns the constant message of a call that looks like one of slog: a method Debug, Info, Warn or Error, with or without Context.
func logMessage(call *ast.CallExpr) (string, bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	name, withContext := strings.CutSuffix(method.Sel.Name, "Context")
	at := 0
	switch {
	case name == "Log" || name == "LogAttrs":
		at = 2
	case !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name):
		return "", false
	case withContext:
		at = 1
	}
	if len(call.Args) <= at {
		return "", false
	}
	literal, ok := call.Args[at].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	message, err := strconv.Unquote(literal.Value)
	return message, err == nil
}

var (
	persons = regexp.MustCompile(`^(?i:somebody|nobody|strangers?|whoever|anybody|everybody)('?s)?$`)
	tells   = regexp.MustCompile(`^(?i:tell|tells|told|telling|hear|hears|heard|hearing|say|says|said|saying)$`)
)

// phrases are what comments and documents do not use, because a reader has to translate it. Each has what to write instead.
func phrases() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"does not exist, no X exists, nil when": regexp.MustCompile(`([^e]|[^r]e) (is|are|was|were|be) none\b`), // there is none,
		"has ended, has passed, is closed":      regexp.MustCompile(`\b(is|are|was|were|be) over[.,;:)]`),
		"again, from the start":                 regexp.MustCompile(`\banew\b`),
		"the beginning, the start":              regexp.MustCompile(`\bthe begin\b`),
		"after":                                 regexp.MustCompile(`\bbehind (them|those|each|every|the (first|last|end|commit|answer|message|messages|rows?))\b`),
	}
}

// commentWords counts the words of a file's comments.
type commentWords struct{ total, persons, tells int }

func (c *commentWords) add(file *ast.File) {
	for _, group := range file.Comments {
		for _, w := range letters.FindAllString(group.Text(), -1) {
			c.total++
			switch {
			case persons.MatchString(w):
				c.persons++
			case tells.MatchString(w):
				c.tells++
			}
		}
	}
}

// fault describes which of the two ratios is too high, "" = none.
func (c *commentWords) fault() string {
	perThousand := float64(c.total) / 1000
	if float64(c.persons) > maxPersons*perThousand || float64(c.tells) > max(1, maxTells*perThousand) {
		return fmt.Sprintf("%d persons and %d forms of tell, hear and say in %d words of comment; at most %.1f and %.1f per 1,000", c.persons, c.tells, c.total, maxPersons, maxTells)
	}
	return ""
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

// legacyOf returns the longest listed path that dir is or lies below.
func legacyOf(listed []string, dir string) string {
	best := ""
	for _, path := range listed {
		if under(dir, path) && len(path) > len(best) {
			best = path
		}
	}
	return best
}

func TestNamesAndLogMessagesUseTheWordsOfTheField(t *testing.T) {
	t.Parallel()
	bounds := legacyNames()
	var listed []string
	for path := range bounds {
		listed = append(listed, path)
	}
	counts := map[string][]string{}
	names := 0
	for _, p := range list(t, "./...") {
		dir := relativeDir(p)
		if support(p.ImportPath) || dir == "cmd/structure" {
			continue
		}
		fset := token.NewFileSet()
		for _, file := range productFiles(t, fset, p) {
			names += len(declared(file))
			for _, u := range bannedUses(fset, file) {
				at := legacyOf(listed, dir)
				if at == "" {
					t.Errorf("%s/%s: %q has the word %q", dir, u.place, u.text, u.word)
				}
				counts[at] = append(counts[at], fmt.Sprintf("%s/%s: %s", dir, u.place, u.text))
			}
		}
	}
	if names < 10_000 {
		t.Errorf("the product declares %d names; that is not all of it", names)
	}
	for path, bound := range bounds {
		switch n := len(counts[path]); {
		case n > bound:
			t.Errorf("%s has %d names and log messages with a banned word, at most %d are known:\n%s", path, n, bound, strings.Join(counts[path], "\n"))
		case n < bound:
			t.Logf("%s has %d names and log messages with a banned word; lower its bound from %d", path, n, bound)
		}
	}
}

func TestCommentsSpeakOfProcessesNotOfPersons(t *testing.T) {
	t.Parallel()
	var all commentWords
	for _, p := range list(t, "./...") {
		dir := relativeDir(p)
		if support(p.ImportPath) || dir == "cmd/structure" {
			continue
		}
		var words commentWords
		for _, file := range productFiles(t, token.NewFileSet(), p) {
			words.add(file)
		}
		all.total, all.persons, all.tells = all.total+words.total, all.persons+words.persons, all.tells+words.tells
		switch fault, listed := words.fault(), legacyOf(legacyComments(), dir); {
		case fault != "" && listed == "":
			t.Errorf("%s: %s", dir, fault)
		case fault == "" && listed == dir:
			t.Logf("%s keeps the ratios; take it off the list", dir)
		}
	}
	if all.total < 50_000 {
		t.Errorf("the comments of the product have %d words; that is not all of them", all.total)
	}
	t.Logf("product: %d words of comment, %d persons (%.2f per 1,000), %d forms of tell, hear and say (%.2f per 1,000)",
		all.total, all.persons, 1000*float64(all.persons)/float64(all.total), all.tells, 1000*float64(all.tells)/float64(all.total))
}

func TestCommentsAndDocumentsUseNoPhraseThatReadersHaveToTranslate(t *testing.T) {
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
		if relativeDir(p) == "cmd/structure" {
			continue
		}
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

// TestThePageUsesTheWordsOfTheField looks at all words of the dashboard: names, comments and texts.
func TestThePageUsesTheWordsOfTheField(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, pattern := range []string{"../dashboard/web/*.*", "../dashboard/web/pages/*", "../dashboard/web/ui/*"} { // web/vendor is of others
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		paths = append(paths, found...)
	}
	words, count := banned(), 0
	for _, path := range paths {
		if ext := filepath.Ext(path); ext != ".js" && ext != ".html" && ext != ".css" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range letters.FindAllString(string(text), -1) {
			count++
			for _, w := range wordsOf(name) {
				if slices.Contains(words, w) {
					t.Errorf("%s: %q has the word %q", filepath.Base(path), name, w)
				}
			}
		}
	}
	if count < 5_000 {
		t.Errorf("the page has %d words; that is not all of it", count)
	}
}

func TestBannedWordsAreFound(t *testing.T) {
	t.Parallel()
	const source = `package p

type house struct{ tellAll bool }

func (h house) HTTPTold(whoever int) (heard error) {
	soonDone := 1
	for nobody := range 3 {
		_ = nobody
	}
	log.InfoContext(ctx, "nobody is there", "said", 1)
	log.Warn("the " + "door")
	storyteller, newsletter, doorway := 1, 2, 3
	_, _, _ = storyteller, newsletter, doorway
	return nil
}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range bannedUses(fset, file) {
		got = append(got, u.word)
	}
	slices.Sort(got)
	if want := []string{"heard", "house", "nobody", "nobody", "soon", "tell", "told", "whoever"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := wordsOf("parseHTTPNewsURL_toldYou2"), []string{"parse", "http", "news", "url", "told", "you2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	few := commentWords{total: 999, tells: 2}
	enough := commentWords{total: 10_000, tells: 10, persons: 3}
	if few.fault() == "" || enough.fault() != "" {
		t.Errorf("got %q and %q", few.fault(), enough.fault())
	}
}
