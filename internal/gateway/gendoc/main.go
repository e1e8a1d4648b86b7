// Command gendoc writes the description of the wire protocol from the gateway's method table: the
// pages of docs/protocol for people, docs/protocol.json for programs, and wire.d.ts for the type
// checker of the dashboard.
//
// The table has the name, the scope, and the types of the parameters and the result of each method,
// with their limits; the defaults of limits and deadlines also come from the gateway. So none of
// these can differ from the behaviour of a gateway. The meaning of a member is the comment of its
// field in package wire. Everything else is prose: the text around the tables is in
// protocol.md.tmpl, the description of a method and of an event in notes.go. A method or an event
// without a note or a page, and a member without a comment, is an error.
//
// It reads the sources of package wire, writes the files, and is run by `go generate`:
//
//	go run ./internal/gateway/gendoc -out docs -wire internal/wire -types internal/dashboard/types
package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/jobs"
	"laneway/internal/wire"
	"laneway/internal/wire/schema"
)

func main() {
	out := flag.String("out", "docs", "directory to write protocol.json and the pages of protocol to")
	wire := flag.String("wire", "internal/wire", "directory of package wire, whose comments are the meanings of members")
	types := flag.String("types", "internal/dashboard/types", "directory to write wire.d.ts to")
	flag.Parse()
	if err := run(*out, *wire, *types); err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1) // a generator is a separate program
	}
}

func run(dir, wire, types string) error {
	all, err := render(wire)
	if err != nil {
		return err
	}
	var faults []error
	for name, text := range all.pages {
		faults = append(faults, write(filepath.Join(dir, "protocol", name), text))
	}
	return errors.Join(append(faults, write(filepath.Join(dir, "protocol.json"), all.machine), write(filepath.Join(types, "wire.d.ts"), all.types))...)
}

func write(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil { // documentation, readable for all
		return fmt.Errorf("writing the description: %w", err)
	}
	return nil
}

// rendered has the generated files: for people, for programs, for the type checker.
type rendered struct {
	pages          map[string][]byte // by the name of the file below docs/protocol
	machine, types []byte
}

// render generates the files from a gateway that is never served; no backend is called. wire
// is the directory of package wire.
func render(wire string) (out rendered, err error) {
	cred := auth.Credential{Name: "gateway", Digest: sha256.Sum256([]byte("documentation")), Scopes: []string{chat.ScopeRead}}
	srv, err := gateway.New(gateway.Config{Credentials: []auth.Credential{cred}, Jobs: struct{ jobs.Backend }{}}, struct{ gateway.Backend }{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return out, fmt.Errorf("making the table of methods: %w", err)
	}
	texts, err := readMeanings(wire)
	if err != nil {
		return out, err
	}
	all, err := describe(srv, texts)
	if err != nil {
		return out, err
	}
	if out.pages, err = markdown(all); err != nil {
		return out, err
	}
	out.types = typesOf(all)
	out.machine, err = jsonOf(all)
	return out, errors.Join(err, texts.err())
}

// protocol has the content of the generated files.
type protocol struct {
	Methods []described
	Connect described
	Events  []describedEvent
	Error   *schema.Type
	// Types are the named types of results and payloads, sorted by name.
	Types  []*schema.Type
	Config gateway.Config
	Bounds bounds

	meanings meanings
}

// described is a row of the table with its note.
type described struct {
	gateway.MethodInfo
	note
}

// describedEvent is an event with its note.
type describedEvent struct {
	gateway.EventInfo
	eventNote
}

type bounds struct {
	Version, ProbeVersion                  int
	HandshakeLimit, MinPayload, MaxPayload int64
	Tick                                   time.Duration
}

func describe(srv *gateway.Server, texts meanings) (protocol, error) {
	all := protocol{
		Config: gateway.Defaults(), Error: schema.Result(reflect.TypeFor[wire.Error]()), meanings: texts,
		Bounds: bounds{
			wire.ProtocolVersion, wire.MinProbeVersion, gateway.HandshakeLimit, gateway.MinPayload, gateway.MaxPayload, gateway.TickEvery,
		},
	}
	known := notes()
	var faults []error
	find := func(m gateway.MethodInfo) described {
		n, ok := known[m.Name]
		if !ok || n.Does == "" {
			faults = append(faults, fmt.Errorf("method %s has no note in notes.go that says what it does", m.Name))
		}
		return described{m, n}
	}
	found := map[string]*schema.Type{}
	for _, m := range srv.Methods() {
		all.Methods = append(all.Methods, find(m))
		collect(found, m.Result)
		for _, f := range m.Params.Fields {
			collect(found, f.Type)
		}
	}
	all.Connect = find(srv.Connect())
	collect(found, all.Connect.Result)
	collect(found, all.Error)
	for _, info := range srv.Events() {
		e, ok := eventNotes()[info.Name]
		if !ok {
			faults = append(faults, fmt.Errorf("event %s has no note in notes.go", info.Name))
		}
		all.Events = append(all.Events, describedEvent{info, e})
		collect(found, info.Payload)
	}
	for _, t := range found {
		all.Types = append(all.Types, t)
	}
	slices.SortFunc(all.Types, func(a, b *schema.Type) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
}

// collect adds a type and the types of its members to the named types.
func collect(found map[string]*schema.Type, t *schema.Type) {
	if t == nil || t.Name != "" && found[t.Name] != nil {
		return
	}
	if t.Name != "" {
		found[t.Name] = t
	}
	collect(found, t.Items)
	for _, v := range t.Variants {
		collect(found, v)
	}
	for _, f := range t.Fields {
		collect(found, f.Type)
	}
}

// meanings are the comments of package wire: of its types by name, and of their fields by
// `Type.Field`.
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
			text := cmp.Or(f.Doc.Text(), f.Comment.Text())
			for _, name := range f.Names {
				m.texts[t.Name.Name+"."+name.Name] = sentence(text)
			}
		}
	}
}

// sentence returns the first paragraph of a comment on one line, without the brackets of links
// between Go names. Further paragraphs are for readers of the code.
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
