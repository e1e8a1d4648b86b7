package storetest

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryInvariantIsBrokenOnce(t *testing.T) {
	t.Parallel()
	var rules, broken []string
	for _, inv := range store.Invariants() {
		rules = append(rules, inv.ID)
	}
	for _, b := range breaks() {
		broken = append(broken, b.id)
	}
	slices.Sort(rules)
	slices.Sort(broken)
	if !slices.Equal(rules, broken) {
		t.Fatalf("invariants %v, breaches %v", rules, broken)
	}
	if unique := slices.Compact(slices.Clone(rules)); len(unique) != len(rules) {
		t.Fatalf("an id is used twice: %v", rules)
	}
}

func TestParamsAreTheNamesInTheText(t *testing.T) {
	t.Parallel()
	known := []string{"now", "gone", "drain", "since", "main", "subagent", "team", "cron", "cap", "secret", "jobs", "keep"}
	for _, inv := range store.Invariants() {
		var found []string
		for _, n := range parameterName.FindAllString(inv.SQL, -1) {
			found = append(found, n[1:])
		}
		slices.Sort(found)
		want := slices.Sorted(slices.Values(inv.Params))
		if got := slices.Compact(found); !slices.Equal(got, want) {
			t.Errorf("%s has the names %v and the params %v", inv.ID, got, want)
		}
		for _, p := range inv.Params {
			if !slices.Contains(known, p) {
				t.Errorf("%s binds %q, which is no known parameter", inv.ID, p)
			}
		}
		if inv.Rule == "" || !strings.Contains(inv.SQL, "SELECT '"+inv.ID+"'") {
			t.Errorf("%s says what it is neither to people nor in its rows", inv.ID)
		}
	}
}

func TestBindLeavesNoNames(t *testing.T) {
	t.Parallel()
	w := &world{reporter: t, tb: t, clock: newClock(), cap: 3}
	for _, inv := range store.Invariants() {
		text := bind(inv, w.values())
		for _, p := range inv.Params {
			if strings.Contains(text, ":"+p) {
				t.Errorf("%s still has :%s in %s", inv.ID, p, text)
			}
		}
	}
}
