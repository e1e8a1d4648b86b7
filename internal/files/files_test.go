package files_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

func open(t *testing.T) (*files.Dir, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attachments")
	d, err := files.Open(path)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d, path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, d *files.Dir) *files.Turn {
	t.Helper()
	turn, err := d.NewTurn()
	must(t, err)
	return turn
}

func write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must(t, os.WriteFile(name, []byte(content), 0o600))
}

func named(paths ...string) (list []chat.Attachment) {
	for _, path := range paths {
		list = append(list, chat.Attachment{Path: path})
	}
	return list
}

func TestWhatIsTakenIsKeptUnderANameOfItsOwn(t *testing.T) {
	t.Parallel()
	d, path := open(t)
	turn := begin(t, d)
	write(t, filepath.Join(turn.Path(), "chart.bin"), png)
	write(t, filepath.Join(turn.Path(), "sub", "notes.txt"), "Grüße")
	must(t, os.Chtimes(filepath.Join(turn.Path(), "chart.bin"), time.Time{}, time.Unix(0, 0)))
	taken, left, err := turn.Take([]chat.Attachment{
		{Path: "chart.bin", Name: "../Sales\u202e\n.png"}, {Path: "sub/notes.txt", MIMEType: "text/markdown; charset=utf-8"}, {Path: "./chart.bin"},
	})
	if err != nil || left != "" || len(taken) != 2 {
		t.Fatalf("taken %+v, left %q, %v", taken, left, err)
	}
	must(t, turn.Remove())
	if _, err := os.Stat(turn.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the turn is still there: %v", err)
	}
	for i, want := range []struct{ name, kind, content string }{{"Sales.png", "image/png", png}, {"notes.txt", "text/markdown", "Grüße"}} {
		got := taken[i]
		if got.Name != want.name || got.MIMEType != want.kind || got.Size != int64(len(want.content)) || !strings.HasPrefix(got.Path, "outgoing/") {
			t.Errorf("file %d is known as %+v, want %+v", i, got, want)
		}
		raw, err := d.Root().ReadFile(got.Path)
		if err != nil || string(raw) != want.content {
			t.Errorf("file %d has %q, %v", i, raw, err)
		}
		info, err := os.Stat(filepath.Join(path, got.Path))
		if err != nil || info.Mode() != 0o600 || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("file %d: %v, %v", i, info, err)
		}
	}
}

func TestAnAbsolutePathInTheDirectoryIsTaken(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	turn := begin(t, d)
	write(t, filepath.Join(turn.Path(), "dir", "a.txt"), "a")
	for path, want := range map[string]string{
		filepath.Join(turn.Path(), "dir", "a.txt"): "dir/a.txt", "dir/a.txt": "dir/a.txt", "/etc/passwd": "/etc/passwd", filepath.Dir(turn.Path()): filepath.Dir(turn.Path()),
	} {
		if got := turn.Below(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func TestOnlyPlainFilesOfTheTurnAreTaken(t *testing.T) {
	t.Parallel()
	d, path := open(t)
	write(t, filepath.Join(path, "telegram-1", "theirs.txt"), "of another conversation")
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "secret")
	turn := begin(t, d)
	in := func(name string) string { return filepath.Join(turn.Path(), name) }
	write(t, in("dir/inner.txt"), "inner")
	write(t, in("empty"), "")
	must(t, os.Symlink(outside, in("link")))
	must(t, os.Symlink("dir", in("linked")))
	must(t, os.Symlink("inner.txt", in("dir/within")))
	must(t, syscall.Mkfifo(in("pipe"), 0o600))
	must(t, os.Link(filepath.Join(path, "telegram-1", "theirs.txt"), in("second-name")))
	for _, tt := range []struct{ path, why string }{
		{"../../telegram-1/theirs.txt", "it is not in the directory for files"},
		{"dir/../../../telegram-1/theirs.txt", "it is not in the directory for files"},
		{outside, "it is not in the directory for files"},
		{"", "it is not in the directory for files"},
		{"a\x00b", "it is not in the directory for files"},
		{".", "it is no plain file"},
		{"..%2f..%2ftelegram-1", "there is no such file"},
		{"nothing", "there is no such file"},
		{"dir", "it is no plain file"},
		{"pipe", "it is no plain file"},
		{"empty", "it is empty"},
		{"link", "it is a link"},
		{"second-name", "it is a link"},
		{"linked/inner.txt", "it is a link"},
		{"dir/within", "it is a link"},
		{"dir/inner.txt/more", "there is no such file"},
	} {
		taken, left, err := turn.Take(named(tt.path))
		if err != nil || len(taken) != 0 || !strings.HasPrefix(left, "Left out: ") || !strings.Contains(left, "("+tt.why+").") {
			t.Errorf("%q: taken %+v, left %q, %v; want it refused, because %s", tt.path, taken, left, err, tt.why)
		}
	}
	for _, kept := range []string{outside, filepath.Join(path, "telegram-1", "theirs.txt"), in("dir/inner.txt")} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("a refused file was moved: %v", err)
		}
	}
}

func TestBoundsOfWhatOneAnswerCarries(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	sized := func(turn *files.Turn, name string, size int64) {
		t.Helper()
		write(t, filepath.Join(turn.Path(), name), "")
		must(t, os.Truncate(filepath.Join(turn.Path(), name), size))
	}
	names := func(list []chat.Attachment) (out []string) {
		for _, f := range list {
			out = append(out, f.Name)
		}
		return out
	}
	for name, tt := range map[string]struct {
		sizes []int64
		taken []string
		left  string
	}{
		"TheLargest":      {[]int64{files.MaxFile}, []string{"f00"}, ""},
		"OneByteMore":     {[]int64{files.MaxFile + 1, 1}, []string{"f01"}, "Left out: f00 (it is larger than 50 MB)."},
		"AllTogether":     {[]int64{files.MaxFile, files.MaxFile - 1, 2, 1}, []string{"f00", "f01", "f03"}, "Left out: f02 (the files of an answer have at most 100 MB together)."},
		"Ten":             {slices.Repeat([]int64{1}, 10), nil, ""},
		"Eleven":          {slices.Repeat([]int64{1}, 11), nil, "Left out: f10 (an answer has at most 10 files)."},
		"ManyAreOneShort": {slices.Repeat([]int64{0}, 9), []string{}, "Left out: f00 (it is empty), f01 (it is empty), f02 (it is empty), f03 (it is empty), f04 (it is empty) and 4 more."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn := begin(t, d)
			var all []string
			for i, size := range tt.sizes {
				all = append(all, fmt.Sprintf("f%02d", i))
				sized(turn, all[i], size)
			}
			taken, left, err := turn.Take(named(all...))
			want := tt.taken
			if want == nil {
				want = all[:10]
			}
			if err != nil || left != tt.left || !slices.Equal(names(taken), want) {
				t.Errorf("taken %q, left %q, %v; want %q, %q", names(taken), left, err, want, tt.left)
			}
			must(t, turn.Remove())
		})
	}
}

func FuzzNoNameLeadsOut(f *testing.F) {
	for _, seed := range []string{"../x", "a/../../x", `..\x`, `\\host\share\x`, "%2e%2e/x", "a\x00", "/etc/passwd", "link/x", ".", "", "C:x", "a/./b"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, path, name string) {
		d, dir := open(t)
		outside := filepath.Join(filepath.Dir(dir), "x")
		write(t, outside, "outside")
		turn := begin(t, d)
		must(t, os.Symlink(filepath.Dir(dir), filepath.Join(turn.Path(), "link")))
		taken, _, err := turn.Take([]chat.Attachment{{Path: path, Name: name}})
		if err != nil || len(taken) != 0 {
			t.Errorf("%q: taken %+v, %v", path, taken, err)
		}
		if raw, err := os.ReadFile(outside); err != nil || string(raw) != "outside" {
			t.Errorf("%q touched what is outside: %q, %v", path, raw, err)
		}
		if shown := chat.FileName(name); shown == "" || strings.ContainsAny(shown, "/\\\n\x00") || shown == ".." || strings.ContainsFunc(shown, chat.Unprintable) {
			t.Errorf("%q is shown as %q", name, shown)
		}
	})
}

func TestOldFilesGoAndTheOnesInUseStay(t *testing.T) {
	t.Parallel()
	d, path := open(t)
	now := time.Now()
	age := func(name string, age time.Duration) {
		t.Helper()
		full := filepath.Join(path, filepath.FromSlash(name))
		if !strings.HasSuffix(name, "/") {
			write(t, full, name)
		}
		must(t, os.Chtimes(full, now.Add(-age), now.Add(-age)))
	}
	crashed, running := begin(t, d), begin(t, d)
	write(t, filepath.Join(crashed.Path(), "left.txt"), "left")
	must(t, os.Chtimes(crashed.Path(), now, now.Add(-26*time.Hour)))
	write(t, filepath.Join(running.Path(), "old.txt"), "copied with its time")
	must(t, os.Chtimes(filepath.Join(running.Path(), "old.txt"), now, now.Add(-1000*time.Hour)))
	age("telegram-1/1-2.png", 73*time.Hour)
	age("telegram-1/3-4.png", 73*time.Hour)
	age("telegram-1/5-6.png.part", 73*time.Hour)
	age("telegram-1/young.png", 71*time.Hour)
	age("outgoing/a", 73*time.Hour)
	age("outgoing/b", 73*time.Hour)
	left := func() (names []string) {
		must(t, filepath.WalkDir(path, func(name string, e os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(path, name); err == nil && !e.IsDir() {
				names = append(names, strings.Replace(rel, filepath.Base(running.Path()), "RUNNING", 1))
			}
			return err
		}))
		return names
	}
	inUse := func(context.Context) ([]string, error) {
		return []string{"outgoing/b", "telegram-1/./3-4.png", "gone"}, nil
	}
	if n, err := d.Sweep(t.Context(), now, time.Time{}, nil); err != nil || n != 1 || len(left()) != 7 {
		t.Errorf("where files are kept for ever: removed %d, %v; left %q", n, err, left())
	}
	broken := errors.New("the store is away")
	if n, err := d.Sweep(t.Context(), now, now.Add(-72*time.Hour), func(context.Context) ([]string, error) { return nil, broken }); !errors.Is(err, broken) || n != 0 || len(left()) != 7 {
		t.Errorf("when the rows in use cannot be read: removed %d, %v", n, err)
	}
	n, err := d.Sweep(t.Context(), now, now.Add(-72*time.Hour), inUse)
	if err != nil || n != 3 {
		t.Errorf("removed %d, %v", n, err)
	}
	if diff := cmp.Diff([]string{"outgoing/b", "telegram-1/3-4.png", "telegram-1/young.png", "turns/RUNNING/old.txt"}, left()); diff != "" {
		t.Errorf("what stays (-want +got):\n%s", diff)
	}
}
