package sqlite

import (
	"bytes"
	"os"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// After a plain DELETE the file still contains the deleted content, unless the engine overwrites it.
func TestDeletedContentIsOverwritten(t *testing.T) {
	t.Parallel()
	const text = "a sentence that must not stay in the file"
	path := migrated(t)
	s := reopen(t, nil, path, nil)
	for _, name := range []string{"a", "b", "c"} {
		key := chat.SessionKey{Agent: "main", Rest: name}
		content := text
		if name == "c" {
			content = "something else, so that the page stays in use"
		}
		if _, err := s.AppendTranscript(t.Context(), key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: content}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if _, err := s.DeleteSession(t.Context(), store.DeleteParams{Session: chat.SessionKey{Agent: "main", Rest: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // this copies the log into the file and removes it
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(file, []byte(text)); n > 0 {
		t.Fatalf("the file has the deleted text %d times", n)
	}
	if !bytes.Contains(file, []byte("something else")) {
		t.Fatal("the file does not have what was not deleted: the test looks at the wrong file")
	}
}
