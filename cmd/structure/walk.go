package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"slices"
	"strings"
)

// checker checks the types of the module's packages from their source. Packages of other modules
// stay empty, because the walk does not enter them.
type checker struct {
	m        *module
	standard types.Importer
	done     map[string]*types.Package
	info     *types.Info
}

func newChecker(m *module) *checker {
	return &checker{
		m: m, standard: importer.ForCompiler(token.NewFileSet(), "source", nil), done: map[string]*types.Package{},
		info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}},
	}
}

// Import implements [types.Importer].
func (c *checker) Import(path string) (*types.Package, error) {
	if p := c.done[path]; p != nil {
		return p, nil
	}
	dir, ours := strings.CutPrefix(path, c.m.path+"/")
	if !ours {
		if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
			return c.standard.Import(path)
		}
		p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
		p.MarkComplete()
		c.done[path] = p
		return p, nil
	}
	var files []*ast.File
	for _, f := range c.m.files {
		if f.dir == dir && !strings.HasSuffix(f.name, "_test.go") && !constrained(f.syntax) {
			files = append(files, f.syntax)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no package %s", path)
	}
	conf := types.Config{Importer: c, Error: func(error) {}} // of packages of other modules, which are empty
	p, err := conf.Check(path, c.m.fset, files, c.info)
	if p == nil {
		return nil, err
	}
	c.done[path] = p
	return p, nil
}

// constrained reports whether a build constraint excludes the file on Unix.
func constrained(f *ast.File) bool {
	for _, group := range f.Comments {
		if group.Pos() > f.Package {
			return false
		}
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:build ") && (strings.Contains(c.Text, "windows") || strings.Contains(c.Text, "!unix")) {
				return true
			}
		}
	}
	return false
}

// step is one counted call.
type step struct {
	from, to string // functions
	file     string // of the target
	again    bool
}

// walker follows the calls.
type walker struct {
	c       *checker
	bodies  map[types.Object]*ast.FuncDecl
	entered map[types.Object]bool
	visited map[string]int // entries by file
	steps   []step
}

func walk(w io.Writer, m *module, o options) error {
	c := newChecker(m)
	at := strings.LastIndex(o.start, "/") + 1
	dir, name, ok := strings.Cut(o.start[at:], ".")
	if !ok {
		return errors.New("-walk needs package.Type.Method or package.Function")
	}
	wk := &walker{c: c, bodies: map[types.Object]*ast.FuncDecl{}, entered: map[types.Object]bool{}, visited: map[string]int{}}
	for _, in := range append(slices.Clone(o.within), o.start[:at]+dir) {
		if _, err := c.Import(m.path + "/" + in); err != nil {
			continue // a package that does not exist in this version
		}
		for _, f := range m.files {
			if f.dir != in || f.test {
				continue
			}
			for _, d := range f.syntax.Decls {
				if fn, isFunc := d.(*ast.FuncDecl); isFunc && fn.Body != nil {
					wk.bodies[c.info.Defs[fn.Name]] = fn
				}
			}
		}
	}
	for obj, fn := range wk.bodies {
		full := fn.Name.Name
		if fn.Recv != nil {
			full = receiver(fn) + "." + full
		}
		if full == name && obj.Pkg().Path() == m.path+"/"+o.start[:at]+dir {
			wk.enter(obj, fn)
			wk.print(w, o)
			return nil
		}
	}
	return fmt.Errorf("there is no function %s", o.start)
}

func (w *walker) file(n ast.Node) string {
	path := w.c.m.fset.Position(n.Pos()).Filename
	return path[strings.Index(path, "internal/"):]
}

// enter walks through the body of a function once.
func (w *walker) enter(obj types.Object, fn *ast.FuncDecl) {
	w.entered[obj] = true
	if len(w.visited) == 0 {
		w.visited[w.file(fn)]++
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		target := origin(w.c.info.Uses[id])
		body := w.bodies[target]
		if body == nil {
			return true
		}
		if from, to := w.file(fn), w.file(body); from != to {
			w.steps = append(w.steps, step{from: fn.Name.Name, to: body.Name.Name, file: to, again: w.visited[to] > 0})
			w.visited[to]++
		}
		if !w.entered[target] {
			w.enter(target, body)
		}
		return true
	})
}

// origin returns the declared function of an instance of a generic one.
func origin(obj types.Object) types.Object {
	if fn, ok := obj.(*types.Func); ok {
		return fn.Origin()
	}
	return obj
}

func (w *walker) print(out io.Writer, o options) {
	again := 0
	for _, s := range w.steps {
		note := ""
		if s.again {
			again++
			note = "  (again)"
		}
		if o.steps {
			fmt.Fprintf(out, "    %s -> %s in %s%s\n", s.from, s.to, s.file, note)
		}
	}
	fmt.Fprintf(out, "walk from %s: %d functions, %d files; %d calls that change the file, %d of them to a file entered before\n",
		o.start, len(w.entered), len(w.visited), len(w.steps), again)
	files := make([]string, 0, len(w.visited))
	for f := range w.visited {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(w.visited[b]-w.visited[a], strings.Compare(a, b)) })
	for _, f := range files[:min(5, len(files))] {
		fmt.Fprintf(out, "  %3d entries  %s\n", w.visited[f], f)
	}
}
