package store

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
)

func TestFirstCharsCutsBehindOneCharacterMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"abc", 0, "abc"},
		{"abc", -1, "abc"},
		{"abc", 3, "abc"},
		{"abc", 2, "abc"},
		{"abcd", 2, "abc"},
		{"", 1, ""},
		{"äöü", 3, "äöü"},
		{"äöü", 2, "äöü"},
		{"äöüß", 2, "äöü"},
		{"a\xff\xfeb", 2, "a\xff\xfe"},
	} {
		if got := FirstChars(c.text, c.n); got != c.want {
			t.Errorf("FirstChars(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestASearchIsCutToItsNewestHits(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	hit := func(rest string, seq int64, after time.Duration) Hit {
		return Hit{Session: chat.SessionKey{Agent: "main", Rest: rest}, Entry: chat.TranscriptEntry{Seq: seq, At: at.Add(after)}}
	}
	// Newest first. At equal times by session, and within a session the higher number first.
	sorted := []Hit{hit("b", 1, 2), hit("a", 3, 1), hit("a", 2, 1), hit("b", 7, 1), hit("a", 1, 0)}
	for limit, want := range map[int]SearchResult{
		5: {Hits: sorted},
		4: {Hits: sorted[:4], More: true, Back: at.Add(1)},
		1: {Hits: sorted[:1], More: true, Back: at.Add(2)},
		0: {Hits: sorted},
	} {
		given := []Hit{sorted[2], sorted[4], sorted[0], sorted[3], sorted[1]}
		if got := (SearchQuery{Limit: limit}).Cut(given); !reflect.DeepEqual(got, want) {
			t.Errorf("limit %d: got %+v, want %+v", limit, got, want)
		}
	}
}

func TestASubTurnIsLeftWhenNoParentWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task Task
		want bool
	}{
		"its parent runs":                          {Task{State: StateRunning}, false},
		"its parent was stopped":                   {Task{State: StateRunning, ParentOutcome: chat.OutcomeStopped}, true},
		"it is announced, its parent was stopped":  {Task{State: StateWaiting, ParentOutcome: chat.OutcomeStopped, Announce: true}, true},
		"it is announced, its parent was replaced": {Task{State: StateWaiting, ParentOutcome: chat.OutcomeSuperseded, Announce: true}, true},
		"it is announced, its parent has ended":    {Task{State: StateRunning, ParentOutcome: chat.OutcomeAnswered, Announce: true}, false},
		"its parent has ended although it waited":  {Task{State: StateRunning, ParentOutcome: chat.OutcomeFailed}, true},
		"it has ended itself":                      {Task{State: StateDone, ParentOutcome: chat.OutcomeStopped}, false},
	} {
		if got := c.task.Left(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestAJournalThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	asked := JournalRow{Round: 1, Kind: RowAsked, Body: `{"calls":[{"name":"a"},{"name":"b"}]}`}
	result := func(n int64, body string) JournalRow { return JournalRow{Round: 1, Kind: RowResult, N: n, Body: body} }
	for want, rows := range map[string][]JournalRow{
		"":                         {asked, {Round: 1, Kind: RowInput, N: 7}, result(0, "{}"), result(1, "{}")},
		"a result of call 2 of 2":  {asked, result(2, "{}")},
		"a result of call -1 of 2": {asked, result(-1, "{}")},
		"reading the result of call 1 in round 1": {asked, result(1, "{")},
		"without what was asked":                  {asked, {Round: 2, Kind: RowInput}},
		"reading round 1: ":                       {{Round: 1, Kind: RowAsked, Body: "{"}},
	} {
		rounds, err := RoundsOf(rows)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", rows, err, want)
		}
		if err == nil && (len(rounds) != 1 || len(rounds[0].Results) != 2 || rounds[0].Results[1] == nil || rounds[0].Input[0] != 7) {
			t.Errorf("got %+v", rounds)
		}
	}
}
