// Command keysgen writes the documentation of every setting from the types of package config and
// the comments of their fields: a file that the program embeds for `laneway config keys`, and the
// page docs/configuration-keys.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"laneway/internal/config"
)

func main() {
	data := flag.String("json", "keys.json", "the file that the program embeds")
	page := flag.String("doc", "", "the page of the documents")
	flag.Parse()
	if err := run(*data, *page); err != nil {
		log.Fatal(err)
	}
}

func run(data, page string) error {
	docs, err := readDocs(".")
	if err != nil {
		return err
	}
	keys := config.Shape()
	for i, k := range keys {
		if keys[i].Meaning = docs[k.Struct+"."+k.Field]; keys[i].Meaning == "" {
			return fmt.Errorf("the field %s.%s (%s) has no comment", k.Struct, k.Field, k.Path)
		}
		keys[i].Meaning = withoutSubject(k.Path, keys[i].Meaning)
	}
	text, err := json.MarshalIndent(keys, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(data, append(text, '\n'), 0o644); err != nil { // a source file
		return err
	}
	return os.WriteFile(page, []byte(pageOf(keys)), 0o644) // a document
}

// readDocs returns the comments of the fields of a package's structs, by Struct.Field. A field
// without a comment has the one of the field before it.
func readDocs(dir string) (map[string]string, error) {
	docs := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					describe(docs, spec.Name.Name, s, commentOf(parsed, spec))
				}
			}
			return true
		})
	}
	return docs, nil
}

func commentOf(file *ast.File, spec *ast.TypeSpec) string {
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && len(g.Specs) == 1 && g.Specs[0] == spec {
			return g.Doc.Text()
		}
	}
	return ""
}

func describe(docs map[string]string, name string, s *ast.StructType, ofType string) {
	last := ofType
	yaml := map[string]string{}
	for _, f := range s.Fields.List {
		if tag := tagOf(f); tag != "" && len(f.Names) == 1 {
			yaml[f.Names[0].Name] = tag
		}
	}
	for _, f := range s.Fields.List {
		if text := f.Doc.Text(); text != "" {
			last = text
		}
		for _, n := range f.Names {
			docs[name+"."+n.Name] = inKeys(last, yaml)
		}
	}
}

func tagOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	return reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml")
}

var word = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)

// inKeys replaces the names of fields by their keys, and puts the comment on one line.
func inKeys(text string, yaml map[string]string) string {
	text = strings.Join(strings.Fields(text), " ")
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if key := yaml[w]; key != "" {
			return "`" + key + "`"
		}
		return w
	})
}

// withoutSubject drops the name of the key from the beginning of its meaning, where the rest is a
// phrase: "`cap` is how many turns may wait" becomes "How many turns may wait".
func withoutSubject(path, meaning string) string {
	subject := "`" + path[strings.LastIndex(path, ".")+1:] + "` "
	rest, ok := strings.CutPrefix(meaning, subject)
	verb, phrase, _ := strings.Cut(rest, " ")
	first, _, _ := strings.Cut(phrase, " ")
	if !ok || verb != "is" && verb != "are" || !slices.Contains([]string{"the", "a", "an", "how", "what", "when", "who", "additional", "addresses", "hosts", "variables", "text", "those", "at", "users", "groups", "tools"}, first) {
		return meaning
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:]
}

func pageOf(keys []config.Key) string {
	var b strings.Builder
	b.WriteString("# Every key of the configuration\n\n`make generate` writes this page from the type `config.Config`; `laneway config keys` prints the same.\n[Configuration](configuration.md) explains the keys.\n" +
		"Each entry has the key, its type, its default and its variable.\nA duration is written as `90s`, `10m`, `24h` or `30d`.\nIn the name of a variable, the placeholder stands for the id or name in capitals.\n")
	var groups []string
	of := map[string][]config.Key{}
	for _, k := range keys {
		top, _, nested := strings.Cut(k.Path, ".")
		if !nested {
			top = ""
		}
		if of[top] == nil {
			groups = append(groups, top)
		}
		of[top] = append(of[top], k)
	}
	for _, group := range groups {
		title := "Top level"
		if group != "" {
			title = "`" + group + "`"
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for i, k := range of[group] {
			b.WriteString(map[bool]string{true: "- ", false: "  "}[i == 0 || of[group][i-1].Meaning != k.Meaning])
			b.WriteString(headOf(k))
			if i+1 == len(of[group]) || of[group][i+1].Meaning != k.Meaning { // keys with one comment share it
				fmt.Fprintf(&b, ":\n  %s\n", strings.ReplaceAll(endOfSentence.ReplaceAllString(k.Meaning, "$1\n  $2"), "<", "&lt;"))
			} else {
				b.WriteString(",\n")
			}
		}
	}
	return b.String()
}

var endOfSentence = regexp.MustCompile("([a-z0-9)`/]\\.) ([A-Z`0-9])")

func headOf(k config.Key) string {
	fallback := ""
	if k.Default != "" {
		fallback = ", default `" + k.Default + "`"
	}
	return fmt.Sprintf("**`%s`** (%s%s, `%s`)", k.Path, k.Type, fallback, k.Variable)
}
