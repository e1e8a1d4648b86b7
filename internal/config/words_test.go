package config

import (
	"slices"
	"testing"
)

func TestCommandLinesAreSplitLikeInAShellWithoutOne(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"":                                nil,
		"  ":                              nil,
		"cat":                             {"cat"},
		" my-agent  --session {session} ": {"my-agent", "--session", "{session}"},
		`python3 -c "print('a  b')" ''`:   {"python3", "-c", "print('a  b')", ""},
		`a\ b "c\"d" 'e\f' $(rm) "x"y`:    {"a b", `c"d`, `e\f`, "$(rm)", "xy"},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`"open`, "'open", `end\`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("%q was taken as %q", line, got)
		}
	}
}
