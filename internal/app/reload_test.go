package app

import (
	"slices"
	"testing"

	"laneway/internal/config"
)

// Before, the log of a reload always named lanes and queue.
func TestAReloadNamesWhatChanged(t *testing.T) {
	t.Parallel()
	old := config.Default()
	next := old
	if got := settingChanges("lanes", old.Lanes, next.Lanes); len(got) > 0 {
		t.Errorf("nothing has changed, got %q", got)
	}
	next.Lanes.Main, next.Queue.Mode, next.Queue.Cap = 3, "collect", 20
	if got, want := settingChanges("lanes", old.Lanes, next.Lanes), []string{"lanes.main: 30 → 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := settingChanges("queue", old.Queue, next.Queue), []string{"queue.mode: queue → collect", "queue.cap: 10 → 20"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
