package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
)

func openDir(t *testing.T) *Dir {
	t.Helper()
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func upload(t *testing.T, d *Dir, who, name, content string) chat.Upload {
	t.Helper()
	up, err := d.Save(who, chat.Upload{Attachment: chat.Attachment{Name: name}, Purpose: "user_data"}, strings.NewReader(content), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return up
}

func TestUploadIsFoundByItsOwnerAlone(t *testing.T) {
	t.Parallel()
	d := openDir(t)
	png := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 600)
	up := upload(t, d, "anna", "../../etc/Sales ü.png", png)
	if up.Name != "Sales ü.png" || up.MIMEType != "image/png" || up.Size != int64(len(png)) || strings.Contains(up.ID+up.Path, "anna") {
		t.Errorf("%+v", up)
	}
	got, err := d.Find("anna", true, up.ID)
	if err != nil || got.Attachment != up.Attachment || got.Purpose != "user_data" || got.CreatedAt.UnixMilli() != up.CreatedAt.UnixMilli() {
		t.Errorf("%+v %v, want %+v", got, err, up)
	}
	if info, err := d.root.Stat(got.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of an upload: %v %v, want 0600", info, err)
	}
	content, err := d.Read(got.Path, 1<<20)
	if err != nil || string(content) != png {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	if _, err := d.Find("otto", true, up.ID); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("another principal: %v", err)
	}
	if _, err := d.Find("otto", false, up.ID); err != nil {
		t.Errorf("one that sees everything: %v", err)
	}
	for _, id := range []string{"", "file-", up.ID[5:], up.ID + "0", "file-../" + up.ID[8:], strings.ToUpper(up.ID), up.ID[:len(up.ID)-1] + "g"} {
		if _, err := d.Find("anna", false, id); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	second := upload(t, d, "anna", "", "plain text")
	if second.Name != "file" || second.MIMEType != "text/plain" {
		t.Errorf("%+v", second)
	}
	list, err := d.Uploads("anna")
	if err != nil || len(list) != 2 || list[0].ID != second.ID || list[1].ID != up.ID {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := d.Uploads("otto"); err != nil || len(list) != 0 {
		t.Errorf("another's: %+v %v", list, err)
	}
}

// entries returns the files below the directory of uploads.
func entries(t *testing.T, d *Dir) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(d.path, uploadsDir), func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, e.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestUploadThatIsTooLargeOrBreaksOffLeavesNothing(t *testing.T) {
	t.Parallel()
	d := openDir(t)
	for name, tc := range map[string]struct {
		content io.Reader
		code    chat.Code
	}{
		"too large":  {bytes.NewReader(make([]byte, 1001)), chat.CodeLimit},
		"breaks off": {io.MultiReader(strings.NewReader("abc"), brokenReader{}), chat.CodeInternal},
	} {
		if _, err := d.Save("anna", chat.Upload{}, tc.content, 1000); chat.CodeOf(err) != tc.code {
			t.Errorf("%s: %v", name, err)
		}
		if names := entries(t, d); len(names) != 0 {
			t.Errorf("%s left %v", name, names)
		}
	}
	if _, err := d.Save("anna", chat.Upload{}, bytes.NewReader(make([]byte, 1000)), 1000); err != nil {
		t.Errorf("exactly as large as it may be: %v", err)
	}
}

func TestRetentionRemovesUploadsThatNothingUses(t *testing.T) {
	t.Parallel()
	d := openDir(t)
	now := time.Now()
	old := now.Add(-48 * time.Hour)
	age := func(up chat.Upload) {
		t.Helper()
		for _, name := range []string{up.Path, up.Path + aboutEnding} {
			if err := d.root.Chtimes(name, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	forgotten, named, used := upload(t, d, "anna", "a", "a"), upload(t, d, "anna", "b", "b"), upload(t, d, "anna", "c", "c")
	age(forgotten)
	age(named)
	age(used)
	_, err := d.Sweep(t.Context(), now, now.Add(-24*time.Hour), func(context.Context) ([]string, error) {
		// A message that names a file is accepted between the list of old files and their removal.
		_, err := d.Use("anna", true, used.ID)
		return []string{named.Path}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Find("anna", true, forgotten.ID); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("the forgotten one: %v", err)
	}
	for _, up := range []chat.Upload{named, used} {
		if _, err := d.Read(up.Path, 10); err != nil {
			t.Errorf("%s: %v", up.Name, err)
		}
	}
	if err := d.DropUpload(used.Attachment); err != nil {
		t.Fatal(err)
	}
	if names := entries(t, d); len(names) != 1 {
		t.Errorf("what is left: %v", names)
	}
}

func TestOldestKeptFilesMakeRoom(t *testing.T) {
	t.Parallel()
	d := openDir(t)
	uploaded := upload(t, d, "anna", "mine.txt", strings.Repeat("u", 500))
	keep := func(who, name string) chat.Attachment {
		turn, err := d.NewTurn()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(turn.Path(), name), bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
			t.Fatal(err)
		}
		taken, _, err := turn.Take([]chat.Attachment{{Path: name}})
		if err != nil || len(taken) != 1 {
			t.Fatal(taken, err)
		}
		kept, err := d.Keep(who, taken[0], 250)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	other := keep("ben", "other.txt")
	first, second, third := keep("anna", "1.txt"), keep("anna", "2.txt"), keep("anna", "3.txt")
	if _, err := d.Find("anna", true, first.ID); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("the oldest file: %v, want that it made room", err)
	}
	for _, f := range []chat.Attachment{second, third} {
		up, err := d.Find("anna", true, f.ID)
		if err != nil || up.Name != f.Name || up.MIMEType != "text/plain" || up.Purpose != PurposeAnswer {
			t.Errorf("%+v, %v", up, err)
		}
		if _, err := d.Find("ben", true, f.ID); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("another principal finds it: %v", err)
		}
		if raw, err := d.Read(f.Path, 1000); err != nil || len(raw) != 100 {
			t.Errorf("%d bytes, %v", len(raw), err)
		}
	}
	for who, id := range map[string]string{"anna": uploaded.ID, "ben": other.ID} {
		if _, err := d.Find(who, true, id); err != nil {
			t.Errorf("a file of %s is gone: %v", who, err)
		}
	}
}
