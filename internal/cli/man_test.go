package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryCommandHasAManualPage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	newBench("").run(t, exitOK, "__man", dir)
	for page, want := range map[string][]string{
		"laneway.1":          {".TH LANEWAY 1", ".BR laneway\\-cron (1)"},
		"laneway-cron-add.1": {".B laneway cron add", ".B \\-\\-every", "--cron"},
		"laneway-send.1":     {".I text", ".SH EXIT STATUS"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if part == "--cron" {
				part = `\-\-cron`
			}
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q:\n%s", page, part, text)
			}
		}
		if strings.Contains(string(text), "__") {
			t.Errorf("%s names a hidden command", page)
		}
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not here to check the pages")
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	if out, err := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-Tutf8", "-ww", "-z"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}
