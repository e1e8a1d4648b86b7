// Command testwalk records which functions of laneway one message and one slot call.
//
//	go run ./cmd/testwalk > docs/architecture-walks.md
//
// It builds the program with a line in each function that reports its call, serves with the agent
// echo, and records a message and a slot. It prints each function that another package calls, in the
// order of the first calls, without those that an idle gateway calls, too.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// module is the prefix of the packages whose functions are recorded.
const module = "laneway/"

// head begins the page.
const head = "# Architecture: two walks\n\n" +
	"`make walk` records this page.\n" +
	"It builds laneway so that each function reports its first call, serves with the agent `echo`, and lets it answer one message and fire one slot.\n" +
	"You see the functions that another package calls, in the order of their first calls.\n" +
	"Several goroutines are at work, so neighbours may change places.\n" +
	"Functions that an idle gateway calls too, such as those of the loops and of the database, and those of packages without behaviour (`chat`, `config`) are left out."

func main() {
	root := flag.String("root", ".", "directory of the module")
	flag.Parse()
	fmt.Println(head)
	if err := record(os.Stdout, *root); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

// recorderSource is the package that a recorded program has in addition. Each line names a function
// that was entered and the nearest function of the module below it on the stack.
const recorderSource = `package walkrecord

import (
	"os"
	"runtime"
	"strings"
	"sync"
)

var (
	mu  sync.Mutex
	out *os.File
)

func init() { out, _ = os.OpenFile(os.Getenv("LANEWAY_WALK"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) }

func Enter(name string) {
	if out == nil {
		return
	}
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	caller := ""
	for more := true; more && caller == ""; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasPrefix(f.Function, "laneway/") {
			caller = f.Function
		}
	}
	mu.Lock()
	defer mu.Unlock()
	out.WriteString(name + "\t" + caller + "\n")
}
`

// overlay writes, below dir, a copy of each file of the program whose functions report that they were
// entered, and the list that makes the go command compile the copies. Line numbers stay the same.
func overlay(ctx context.Context, root, dir string) (string, error) {
	replace := map[string]string{}
	add := func(path string, source []byte) error {
		to := filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		replace[path] = to
		return os.WriteFile(to, source, 0o600)
	}
	files := exec.CommandContext(ctx, "go", "list", "-deps", "-f", `{{$p := .}}{{range .GoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}{{"\n"}}{{end}}`, "./cmd/laneway")
	files.Dir, files.Stderr = root, os.Stderr
	listed, err := files.Output()
	if err != nil {
		return "", fmt.Errorf("listing the files of the program: %w", err)
	}
	for line := range strings.Lines(string(listed)) {
		pkg, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(pkg, module) {
			continue
		}
		source, err := instrument(short(pkg), path)
		if err == nil {
			err = add(path, source)
		}
		if err != nil {
			return "", err
		}
	}
	if err := add(filepath.Join(root, "internal/walkrecord/record.go"), []byte(recorderSource)); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// instrument returns the source of a file in which each function reports that it was entered.
func instrument(pkg, path string) ([]byte, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	last := 0
	insert := func(at token.Pos, text string) {
		offset := fset.Position(at).Offset
		out.Write(source[last:offset])
		out.WriteString(text)
		last = offset
	}
	insert(syntax.Name.End(), fmt.Sprintf("; import walkrecord %q", module+"internal/walkrecord"))
	entered := false
	for _, d := range syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			entered = true
			insert(fn.Body.Lbrace+1, fmt.Sprintf(" walkrecord.Enter(%q);", functionName(pkg, fn)))
		}
	}
	if !entered {
		return source, nil
	}
	out.Write(source[last:])
	return out.Bytes(), nil
}

// functionName is package.Function or package.Type.Method.
func functionName(pkg string, fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return pkg + "." + fn.Name.Name
	}
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		default:
			return fmt.Sprintf("%s.%s.%s", pkg, types.ExprString(e), fn.Name.Name)
		}
	}
}

// short is the path of a package without the module and internal/.
func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "internal/")
}

// entry is a function, and the package of the function that called it; "" at a goroutine's start.
type entry struct{ function, from string }

// recording is a gateway that records, and how far its record was read.
type recording struct {
	dir, bin, file string
	env            []string
	read           int64
}

func (r *recording) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

// run executes a command of the program.
func (r *recording) run(ctx context.Context, args ...string) error {
	if out, err := r.command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("laneway %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// next returns what was entered since the last call, each function once, in the order of the first
// entry.
func (r *recording) next() ([]entry, error) {
	f, err := os.Open(r.file) // of this recording
	if err != nil {
		return nil, err
	}
	defer f.Close()
	part, err := io.ReadAll(io.NewSectionReader(f, r.read, 1<<30))
	if err != nil {
		return nil, err
	}
	r.read += int64(len(part))
	var list []entry
	seen := map[string]bool{}
	for line := range strings.Lines(string(part)) {
		name, caller, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !seen[name] {
			seen[name] = true
			list = append(list, entry{function: name, from: packageOf(short(caller))})
		}
	}
	return list, nil
}

func packageOf(function string) string {
	dir, name := "", function
	if at := strings.LastIndex(function, "/"); at >= 0 {
		dir, name = function[:at+1], function[at+1:]
	}
	name, _, _ = strings.Cut(name, ".")
	return dir + name
}

// record builds the program of the module with the recorder, lets a gateway answer a message and
// fire a slot, and prints which functions each of the two entered at a boundary between packages.
// Functions that the idle gateway enters too are left out.
func record(w io.Writer, root string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "walk")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	list, err := overlay(ctx, root, dir)
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	r := &recording{dir: dir, bin: filepath.Join(dir, "program"), file: filepath.Join(dir, "record")}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", list, "-o", r.bin, "./cmd/laneway")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the recorded program: %w: %s", err, out)
	}
	r.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "LANEWAY_LISTEN=127.0.0.1:"+port, "LANEWAY_METRICS_LISTEN=off")
	serve := r.command(ctx, "serve", "--agent", "echo")
	serve.Env = append(r.env, "LANEWAY_WALK="+r.file)
	serve.Cancel = func() error { return serve.Process.Signal(syscall.SIGTERM) }
	serve.Stderr = os.Stderr
	if err := serve.Start(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, serve.Process.Signal(syscall.SIGTERM), serve.Wait())
	}()
	return r.walks(ctx, w)
}

// idle is longer than the period of every loop of the gateway that runs often.
const idle = 8 * time.Second

// walks records the two walks.
func (r *recording) walks(ctx context.Context, w io.Writer) error {
	for {
		if err := r.run(ctx, "health"); err == nil {
			break
		} else if ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	quiet := map[string]bool{}
	learn := func(list []entry, err error) error {
		for _, e := range list {
			quiet[e.function] = true
		}
		return err
	}
	if _, err := r.next(); err != nil { // the start
		return err
	}
	time.Sleep(idle)
	if err := learn(r.next()); err != nil {
		return err
	}
	if err := r.run(ctx, "send", "hello"); err != nil {
		return err
	}
	time.Sleep(time.Second) // the end of the turn follows its answer
	if err := r.print(w, "A message over WebSocket", quiet); err != nil {
		return err
	}
	if err := r.run(ctx, "cron", "add", "--at", "in 5s", "--name", "tea", "--message", "Tea is ready", "--deliver", "web:main"); err != nil {
		return err
	}
	time.Sleep(time.Second)
	if _, err := r.next(); err != nil { // the call that adds the job
		return err
	}
	time.Sleep(idle)
	return r.print(w, "A slot", quiet)
}

// vocabulary are packages of types without behaviour, whose functions the walks leave out.
const vocabulary = " chat config store agent channel gateway/strictjson cli "

// print lists the functions that were entered from another package, as lines of at most a hundred
// characters.
func (r *recording) print(w io.Writer, what string, quiet map[string]bool) error {
	list, err := r.next()
	if err != nil {
		return err
	}
	const wide = 100
	var (
		text     strings.Builder
		all      int
		column   int
		packages = map[string]bool{}
	)
	for _, e := range list {
		in := packageOf(e.function)
		if quiet[e.function] {
			continue
		}
		all++
		packages[in] = true
		if e.from == in || strings.Contains(vocabulary, " "+in+" ") {
			continue
		}
		next := "→ " + e.function
		if column += 1 + utf8.RuneCountInString(next); column > wide {
			text.WriteString("\n")
			column = utf8.RuneCountInString(next)
		} else {
			text.WriteString(" ")
		}
		text.WriteString(next)
	}
	_, err = fmt.Fprintf(w, "\n## %s\n\n%d functions in %d packages.\n\n```\n%s\n```\n", what, all, len(packages), strings.TrimSpace(text.String()))
	return err
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
