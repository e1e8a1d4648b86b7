package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every module that `go version -m` finds in a program is in the document, once, with its version
// and checksum, and nothing else is.
func TestEveryLinkedModuleIsInTheDocument(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "laneway/cmd/testpg").CombinedOutput(); err != nil {
		t.Fatalf("building a program: %v\n%s", err, out)
	}
	var first, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &again} {
		if err := run(w, program, "1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != again.String() {
		t.Error("the same program gave two documents")
	}
	var doc document
	if err := json.Unmarshal(first.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	sum, err := digest(program)
	if top := doc.Metadata.Component; err != nil || doc.Format != "CycloneDX" || top.Name != "program" || top.Version != "1.2.3" || top.Hashes[0].Content != sum || len(sum) != 64 {
		t.Errorf("the program is %+v, %v", top, err)
	}
	seen := map[string]string{}
	for _, c := range doc.Components {
		if seen[c.Name] != "" || c.Ref != c.URL {
			t.Errorf("twice, or without a reference: %+v", c)
		}
		seen[c.Name] = c.Version
		if c.Name != "std" && (len(c.Properties) != 1 || !strings.HasPrefix(c.Properties[0].Value, "h1:")) {
			t.Errorf("%s has no checksum", c.Name)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(out), -1)
	for _, m := range listed {
		if seen[m[1]] != m[2] {
			t.Errorf("%s %s is linked; the document has %q", m[1], m[2], seen[m[1]])
		}
	}
	if len(listed) < 3 || len(seen) != len(listed)+1 || seen["std"] == "" {
		t.Errorf("%d modules are linked, the document has %d", len(listed), len(seen))
	}
}

func TestWhatIsNoProgramIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, text + "-missing"} {
		var w bytes.Buffer
		if err := run(&w, path, ""); err == nil || w.Len() > 0 {
			t.Errorf("%s: %v, %d bytes", path, err, w.Len())
		}
	}
}
