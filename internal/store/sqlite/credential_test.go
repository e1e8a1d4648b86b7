package sqlite

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/storetest"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	storetest.RunCredentials(t, harness)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	storetest.RunRecords(t, harness)
}

func visit(t *testing.T, path string) *Visitor {
	t.Helper()
	v, err := Visit(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return v
}

func TestVisitorChangesTokensWhileTheGatewayRuns(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	running := reopen(t, nil, path, nil)
	t.Cleanup(func() { _ = running.Close() })
	v := visit(t, path)
	token := store.Credential{Name: "anna", Digest: sha256.Sum256([]byte("x")), Scopes: []string{"operator.read"}, Visible: "all"}
	if err := v.CreateCredential(t.Context(), token, store.ChangedBy{Who: "cli"}); err != nil {
		t.Fatal(err)
	}
	if list, err := running.Credentials(t.Context()); err != nil || len(list) != 1 || list[0].Name != "anna" {
		t.Errorf("the gateway sees %+v, %v", list, err)
	}
	if err := v.CreateCredential(t.Context(), token, store.ChangedBy{Who: "cli"}); !errors.Is(err, chat.ErrConflict) {
		t.Errorf("again: %v", err)
	}
	if err := running.RevokeCredential(t.Context(), "anna", store.ChangedBy{Who: "gateway"}); err != nil {
		t.Fatal(err)
	}
	if list, err := v.Credentials(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the visitor sees %+v, %v", list, err)
	}
	if err := v.RevokeCredential(t.Context(), "anna", store.ChangedBy{Who: "cli"}); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestVisitorMakesNoDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "laneway.db")
	if _, err := Visit(t.Context(), Config{Path: path}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(found) != 0 {
		t.Errorf("it made %v", found)
	}
}

func TestVisitorRefusesAnOldSchema(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	if _, err := Migrate(t.Context(), Config{Path: path}, Down); err != nil {
		t.Fatal(err)
	}
	if _, err := Visit(t.Context(), Config{Path: path}); !errors.Is(err, ErrOldSchema) {
		t.Errorf("got %v", err)
	}
}
