package agenttest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"laneway/internal/agent"
)

// withDir gives the request a directory and counts how often it is requested.
func withDir(t *testing.T, req *agent.Request) (dir string, asked *int) {
	t.Helper()
	dir, asked = t.TempDir(), new(int)
	req.OutputDir = func() (string, error) {
		*asked++
		return dir, nil
	}
	return dir, asked
}

func testFiles(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"Here they are."}}
	if subject.Files {
		script.Files = []string{"a.txt", "b c.png", "ü.csv"}
	}
	req := subject.request(script)
	dir, asked := withDir(t, &req)
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if got.err != nil || got.result.Text != script.Text() {
		t.Fatalf("got %q and %v", got.result.Text, got.err)
	}
	if *asked > 1 || (*asked == 0 && subject.Files) {
		t.Errorf("the directory was requested %d times", *asked)
	}
	var paths []string
	for _, f := range got.result.Attachments {
		paths = append(paths, f.Path)
		if raw, err := fs.ReadFile(os.DirFS(dir), f.Path); !filepath.IsLocal(f.Path) || err != nil || string(raw) != f.Path {
			t.Errorf("the result names %+v, which is no file of the turn: %q, %v", f, raw, err)
		}
	}
	if !slices.Equal(paths, script.Files) {
		t.Errorf("files: got %q, want %q", paths, script.Files)
	}
	settled(t, subject)
}

func testNoFiles(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Fail: subject.Reasons[0]}
	if subject.Files {
		script.Files = []string{"half.txt"}
	}
	req := subject.request(script)
	withDir(t, &req)
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if got.err == nil || len(got.result.Attachments) > 0 {
		t.Errorf("got %v and the files %+v", got.err, got.result.Attachments)
	}
	settled(t, subject)
}

func testFilesNowhere(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"text"}}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if got.err != nil || len(got.result.Attachments) > 0 {
		t.Errorf("got %v and the files %+v", got.err, got.result.Attachments)
	}
	settled(t, subject)
}
