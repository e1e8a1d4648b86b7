package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is the parsed source below a directory.
type module struct {
	path  string // of go.mod
	fset  *token.FileSet
	files []*file
}

// file is one Go file.
type file struct {
	dir     string // relative to the root, with slashes
	name    string
	syntax  *ast.File
	lines   int
	test    bool // a test, or test support
	skipped bool // generated
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// load parses every Go file below root.
func load(root string) (*module, error) {
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod")) // the given directory
	if err != nil {
		return nil, fmt.Errorf("reading go.mod: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(string(gomod), "module "), "\n")
	m := &module{path: strings.TrimSpace(name), fset: token.NewFileSet()}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "tools" || isModule(path)):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		return m.add(root, path)
	})
	return m, err
}

// isModule reports whether a directory is a separate module.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func (m *module) add(root, path string) error {
	source, err := os.ReadFile(path) // a path below the given root
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(m.fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	dir := filepath.ToSlash(rel)
	m.files = append(m.files, &file{
		dir: dir, name: filepath.Base(path), syntax: syntax, lines: strings.Count(string(source), "\n"),
		test: strings.HasSuffix(path, "_test.go") || support(dir), skipped: generated.Match(source),
	})
	return nil
}

// support reports whether a directory is test support.
func support(dir string) bool {
	for part := range strings.SplitSeq(dir, "/") {
		if strings.HasPrefix(part, "test") || strings.HasSuffix(part, "test") {
			return true
		}
	}
	return dir == "cmd/structure" || strings.HasPrefix(dir, "docs/")
}

// product lists the files of the product.
func (m *module) product() []*file {
	return slices.DeleteFunc(slices.Clone(m.files), func(f *file) bool { return f.test || f.skipped })
}

type typeCount struct {
	pkg, name string
	methods   int
	adapter   bool
}

// types counts the methods of every type of the product, in descending order.
func (m *module) types() []typeCount {
	counts := map[[2]string]int{}
	for _, f := range m.product() {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				counts[[2]string{f.dir, receiver(fn)}]++
			}
		}
	}
	all := make([]typeCount, 0, len(counts))
	for key, n := range counts {
		adapter := strings.HasPrefix(key[0], "internal/store/")
		all = append(all, typeCount{pkg: key[0], name: key[1], methods: n, adapter: adapter})
	}
	slices.SortFunc(all, func(a, b typeCount) int {
		return cmp.Or(b.methods-a.methods, strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
	})
	return all
}

// receiver returns the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return "?"
		}
	}
}

type wordCount struct{ total, persons, tells int }

func (w wordCount) per(n int) float64 { return 1000 * float64(n) / float64(max(w.total, 1)) }

var (
	word    = regexp.MustCompile(`[A-Za-z']+`)
	persons = regexp.MustCompile(`^(?i:somebody|nobody|strangers?|whoever|anybody|everybody)('?s)?$`)
	tells   = regexp.MustCompile(`^(?i:tell|tells|told|telling|hear|hears|heard|hearing|say|says|said|saying)$`)
)

// words counts the words of the product's comments.
func (m *module) words() wordCount {
	var n wordCount
	for _, f := range m.product() {
		for _, group := range f.syntax.Comments {
			for _, w := range word.FindAllString(group.Text(), -1) {
				n.total++
				switch {
				case persons.MatchString(w):
					n.persons++
				case tells.MatchString(w):
					n.tells++
				}
			}
		}
	}
	return n
}

type lineCount struct{ product, comment, tests int }

func (m *module) lines() lineCount {
	var n lineCount
	for _, f := range m.files {
		switch {
		case f.skipped:
		case f.test:
			n.tests += f.lines
		default:
			n.product += f.lines
			for _, group := range f.syntax.Comments {
				n.comment += m.fset.Position(group.End()).Line - m.fset.Position(group.Pos()).Line + 1
			}
		}
	}
	return n
}

// packages counts the packages of the product.
func (m *module) packages() int {
	dirs := map[string]bool{}
	for _, f := range m.product() {
		dirs[f.dir] = true
	}
	return len(dirs)
}
