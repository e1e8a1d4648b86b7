package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"laneway/internal/wire/schema"
)

// meanings are the comments of package wire: of its types by name, and of their fields by `Type.Field`.
type meanings struct {
	texts  map[string]string
	faults *[]error // members and types without a comment
}

// readMeanings reads the comments of the package in dir.
func readMeanings(dir string) (meanings, error) {
	m := meanings{texts: map[string]string{}, faults: &[]error{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return m, fmt.Errorf("reading package wire: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return m, fmt.Errorf("reading package wire: %w", err)
		}
		for _, d := range file.Decls {
			if types, ok := d.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				m.add(types)
			}
		}
	}
	return m, nil
}

func (m meanings) add(types *ast.GenDecl) {
	for _, spec := range types.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		m.texts[t.Name.Name] = sentence(types.Doc.Text())
		s, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			text := f.Doc.Text()
			if text == "" {
				text = f.Comment.Text()
			}
			for _, name := range f.Names {
				m.texts[t.Name.Name+"."+name.Name] = sentence(text)
			}
		}
	}
}

// sentence returns the first paragraph of a comment on one line, without the brackets of links between Go names. Further paragraphs are for
// readers of the code.
func sentence(comment string) string {
	comment, _, _ = strings.Cut(comment, "\n\n")
	return strings.NewReplacer("[", "", "]", "").Replace(strings.Join(strings.Fields(comment), " "))
}

func (m meanings) of(name string) string {
	text := m.texts[name]
	if text == "" {
		*m.faults = append(*m.faults, fmt.Errorf("%s of package wire has no comment that says what it means", name))
	}
	return text
}

func (m meanings) ofType(name string) string     { return m.of(name) }
func (m meanings) ofField(f schema.Field) string { return m.of(f.Owner + "." + f.GoName) }
func (m meanings) err() error                    { return errors.Join(*m.faults...) }
