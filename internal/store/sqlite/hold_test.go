package sqlite

import (
	"path/filepath"
	"testing"

	"laneway/internal/store"
)

// A backup that is served next to its original must not act, while the original continues.
func TestABackupIsHeldAndItsOriginalIsNot(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	s := reopen(t, nil, path, nil)
	defer func() { _ = s.Close() }()
	dest := filepath.Join(t.TempDir(), "copy.db")
	if err := Backup(t.Context(), path, dest); err != nil {
		t.Fatal(err)
	}
	v, err := Visit(t.Context(), Config{Path: dest})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }()
	h, err := v.Hold(t.Context())
	if err != nil || h == nil || h.Who != "laneway backup" || h.Since.IsZero() {
		t.Fatalf("the backup has the hold %+v, %v", h, err)
	}
	if h, err := s.Hold(t.Context()); err != nil || h != nil {
		t.Fatalf("the original has the hold %+v, %v", h, err)
	}
	if err := v.SetHold(t.Context(), nil, store.ChangedBy{Who: "cli"}); err != nil {
		t.Fatal(err)
	}
	if h, err := v.Hold(t.Context()); err != nil || h != nil {
		t.Fatalf("the released backup has the hold %+v, %v", h, err)
	}
}
