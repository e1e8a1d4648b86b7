package storetest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/store"
)

// canary is a text that no row may contain.
const canary = "canary-7f3a"

// bind puts values where the text of an invariant has names. Values are SQL literals.
func bind(inv store.Invariant, values map[string]string) string {
	name := regexp.MustCompile(`:[a-z]+`)
	return name.ReplaceAllStringFunc(inv.SQL, func(found string) string { return values[found[1:]] })
}

// values are what the invariants are checked with when nothing is to be found.
func (w *world) values() map[string]string {
	at := func(back time.Duration) string { return literal(w.clock.now().Add(-back).UnixMilli()) }
	return map[string]string{
		"now": at(0), "gone": at(lease + 5*time.Second), "drain": at(32 * time.Second), "since": at(24 * time.Hour),
		"main": literal(1 << 20), "subagent": literal(1 << 20), "team": literal(1 << 20), "cron": literal(1 << 20),
		"cap": literal(int64(w.cap)), "secret": "'" + canary + "'", "jobs": literal(1 << 20), "keep": "1",
	}
}

// violations runs one invariant.
func (w *world) violations(inv store.Invariant, values map[string]string) [][]any {
	w.Helper()
	return w.h.Query(w.tb, strings.TrimSpace(bind(inv, values)))
}

func (w *world) checkInvariants(when string) {
	w.Helper()
	if w.h.Query == nil {
		return
	}
	for _, inv := range store.Invariants() {
		if rows := w.violations(inv, w.values()); len(rows) > 0 {
			w.Errorf("%s: %s is broken: %s\n%v", when, inv.ID, inv.Rule, rows)
		}
	}
}

func runInvariants(t *testing.T, open Opener) {
	t.Helper()
	for _, b := range breaks() {
		t.Run(b.id, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			if w.h.Exec != nil {
				w.breakOne(b)
			}
		})
	}
}
