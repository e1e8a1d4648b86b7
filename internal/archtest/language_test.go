package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
