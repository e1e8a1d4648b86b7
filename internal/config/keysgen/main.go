// Command keysgen writes the documentation of every setting from the types of package config and
// the comments of their fields: a file that the program embeds for `laneway config keys`, and the
// page docs/configuration-keys.md with those below it.
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
	"path/filepath"
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
	pages, err := pagesOf(keys, strings.TrimSuffix(filepath.Base(page), ".md"))
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(filepath.Dir(page), name), []byte(text), 0o644); err != nil { // a document
			return err
		}
	}
	return nil
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

// section is a page: the keys from First on, up to the first key of the next section. The first
// section is on the index.
type section struct{ first, file, title, about string }

func sections() []section {
	return []section{
		{"listen", "", "", "listeners, tokens, the database, files"},
		{"lanes.main", "queues.md", "Keys of lanes and queues", "how many turns run at once, and how messages wait"},
		{"agents.<id>.runner", "agents.md", "Keys of agents", "`agents`: programs, directories, what they may do"},
		{"agents.<id>.base_url", "models.md", "Keys of agents with a model", "`agents`: models, prices, tools"},
		{"channels.web.debounce_ms", "channels.md", "Keys of channels", "`channels`: Telegram and webhooks"},
		{"cron.enabled", "jobs.md", "Keys of jobs and history", "`cron` and `history`"},
		{"limits.cron_writes", "limits.md", "Keys of limits and budgets", "`limits` and `budgets`"},
		{"cluster.node_id", "cluster.md", "Keys of replicas, hooks, tools and the log", "`cluster`, `hooks`, `mcp` and `log`"},
	}
}

// pagesOf returns the pages by name, the index and those in the directory dir.
func pagesOf(keys []config.Key, dir string) (map[string]string, error) {
	const note = "`make generate` writes this page from the type `config.Config`; `laneway config keys` prints every key.\n"
	top := func(k config.Key) string {
		group, _, nested := strings.Cut(k.Path, ".")
		if !nested {
			return ""
		}
		return group
	}
	var groups []string
	for _, k := range keys {
		if !slices.Contains(groups, top(k)) {
			groups = append(groups, top(k))
		}
	}
	slices.SortStableFunc(keys, func(a, b config.Key) int { return slices.Index(groups, top(a)) - slices.Index(groups, top(b)) })
	list, pages, at := sections(), map[string]string{}, 0
	var index strings.Builder
	for i, s := range list {
		end := len(keys)
		if i+1 < len(list) {
			end = slices.IndexFunc(keys, func(k config.Key) bool { return k.Path == list[i+1].first })
		}
		if keys[at].Path != s.first || end <= at {
			return nil, fmt.Errorf("the section of %s begins with the key %s; correct the first keys of sections", s.first, keys[at].Path)
		}
		var b strings.Builder
		for from := at; from < end; {
			to := from
			for to < end && top(keys[to]) == top(keys[from]) {
				to++
			}
			b.WriteString(groupOf(top(keys[from]), keys[from:to]))
			from = to
		}
		at = end
		if s.file == "" {
			index.WriteString(b.String())
			continue
		}
		pages[filepath.Join(dir, s.file)] = "# " + s.title + "\n\n" + note + "[All keys](../" + dir + ".md), and how to read these entries.\n" + b.String()
	}
	var text strings.Builder
	text.WriteString("# Every key of the configuration\n\n" + note + "[Configuration](configuration.md) explains the keys.\n" +
		"Each entry has the key, its type, its default and its variable.\nA duration is written as `90s`, `10m`, `24h` or `30d`.\nIn the name of a variable, the placeholder stands for the id or name in capitals.\n" +
		"\n| page | keys |\n|---|---|\n")
	for _, s := range list[1:] {
		fmt.Fprintf(&text, "| [%s](%s/%s) | %s |\n", s.title, dir, s.file, s.about)
	}
	pages[dir+".md"] = text.String() + index.String()
	return pages, nil
}

// groupOf returns the keys below one key, or those of the top level.
func groupOf(group string, keys []config.Key) string {
	var b strings.Builder
	title := "Top level"
	if group != "" {
		title = "`" + group + "`"
	}
	fmt.Fprintf(&b, "\n## %s\n\n", title)
	for i, k := range keys {
		if owner, _, below := strings.Cut(k.Path, queueBelow); below { // the keys of queue, once more
			if i == 0 || !strings.HasPrefix(keys[i-1].Path, owner+queueBelow) {
				fmt.Fprintf(&b, "- **`%s%s…`** (the keys of [`queue`](queues.md#queue)):\n  %s\n", owner, queueBelow, sentences(k.Meaning))
			}
			continue
		}
		b.WriteString(map[bool]string{true: "- ", false: "  "}[i == 0 || keys[i-1].Meaning != k.Meaning])
		b.WriteString(headOf(k))
		if i+1 == len(keys) || keys[i+1].Meaning != k.Meaning { // keys with one comment share it
			b.WriteString(":\n  " + sentences(k.Meaning) + "\n")
		} else {
			b.WriteString(",\n")
		}
	}
	return b.String()
}

// queueBelow stands before the keys of the queue of an agent or a channel.
const queueBelow = ".queue."

// sentences puts each sentence of a meaning on its own line.
func sentences(meaning string) string {
	return strings.ReplaceAll(endOfSentence.ReplaceAllString(meaning, "$1\n  $2"), "<", "&lt;")
}

var endOfSentence = regexp.MustCompile("([a-z0-9)`/]\\.) ([A-Z`0-9])")

func headOf(k config.Key) string {
	fallback := ""
	if k.Default != "" {
		fallback = ", default `" + k.Default + "`"
	}
	return fmt.Sprintf("**`%s`** (%s%s, `%s`)", k.Path, k.Type, fallback, k.Variable)
}
