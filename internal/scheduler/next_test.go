package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/scheduler"
)

// start is when the first message of a table was accepted.
func start() time.Time { return time.UnixMilli(1_700_000_000_000) }

func after(ms int) time.Time { return start().Add(time.Duration(ms) * time.Millisecond) }

// rowsOf makes waiting messages from words such as "3:ann@500t": number 3 of ann, accepted after
// 500 ms. The letters say: t typed, a alone, g gathers, i mode interrupt, c collect, s steer; a
// word behind a slash is the run that took it before.
func rowsOf(t *testing.T, words ...string) (rows []scheduler.Row) {
	t.Helper()
	for _, word := range words {
		word, run, _ := strings.Cut(word, "/")
		r := scheduler.Row{Lane: "main", Size: 10, RunID: run}
		var ms int
		var marks string
		_, rest, _ := strings.Cut(word, ":")
		r.Sender, rest, _ = strings.Cut(rest, "@")
		if _, err := fmt.Sscanf(word, "%d:", &r.Seq); err != nil {
			t.Fatalf("%s: %v", word, err)
		}
		if n, _ := fmt.Sscanf(rest, "%d%s", &ms, &marks); n == 0 {
			t.Fatalf("%s has no time", word)
		}
		r.Accepted = after(ms)
		r.Typed, r.Alone, r.Gathers = strings.Contains(marks, "t"), strings.Contains(marks, "a"), strings.Contains(marks, "g")
		for letter, mode := range map[string]scheduler.QueueMode{"i": scheduler.ModeInterrupt, "c": scheduler.ModeCollect, "s": scheduler.ModeSteer} {
			if strings.Contains(marks, letter) {
				r.Mode = mode
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func seqsOf(rows []scheduler.Row) (seqs []int64) {
	for _, r := range rows {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}

func TestNextChoosesFromRows(t *testing.T) {
	t.Parallel()
	usual := scheduler.DefaultSettings()
	group, small, never := usual, usual, usual
	group.MaxConcurrent, small.BatchBytes, never.Debounce = 3, 25, -1
	for name, c := range map[string]struct {
		rows    []string
		s       scheduler.Settings
		st      scheduler.SessionState
		now     int
		take    []int64
		until   int
		stopped []int64
	}{
		"nothing waits":                           {s: usual},
		"a message starts":                        {rows: []string{"1:ann@0"}, s: usual, take: []int64{1}},
		"the order is that of the numbers":        {rows: []string{"1:ann@0", "2:bob@0"}, s: usual, take: []int64{1}},
		"a typed message waits for its window":    {rows: []string{"1:ann@0t"}, s: usual, now: 100, until: 800},
		"a further message moves its end":         {rows: []string{"1:ann@0t", "2:ann@500t"}, s: usual, now: 700, until: 1300},
		"but not beyond the longest hold":         {rows: []string{"1:ann@0t", "2:ann@700t", "3:ann@1400t", "4:ann@2100t"}, s: usual, now: 2200, until: 2400},
		"both start at its end":                   {rows: []string{"1:ann@0t", "2:ann@500t"}, s: usual, now: 1300, take: []int64{1, 2}},
		"a late look finds the same units":        {rows: []string{"1:ann@0t", "2:ann@900t"}, s: usual, now: 9000, take: []int64{1}},
		"another sender ends a window":            {rows: []string{"1:ann@0t", "2:bob@100t"}, s: usual, now: 150, take: []int64{1}},
		"a missing number ends a window":          {rows: []string{"1:ann@0t", "3:ann@100t"}, s: usual, now: 150, take: []int64{1}},
		"and so does one after it":                {rows: []string{"1:ann@0t"}, s: usual, st: scheduler.SessionState{Last: 2}, now: 150, take: []int64{1}},
		"a message with a file shares no turn":    {rows: []string{"1:ann@0t", "2:ann@100ta"}, s: usual, now: 150, take: []int64{1}},
		"a batch is cut by its bytes":             {rows: []string{"1:ann@0t", "2:ann@100t", "3:ann@200t"}, s: small, now: 250, take: []int64{1, 2}},
		"no window is configured":                 {rows: []string{"1:ann@0t", "2:ann@1t"}, s: never, take: []int64{1}},
		"collect takes what waits":                {rows: []string{"1:ann@0c", "2:bob@0c", "3:ann@0c"}, s: usual, take: []int64{1, 2, 3}},
		"the session collects":                    {rows: []string{"1:ann@0", "2:bob@0"}, s: usual, st: scheduler.SessionState{Mode: scheduler.ModeCollect}, take: []int64{1, 2}},
		"collect ends at a message with a file":   {rows: []string{"1:ann@0c", "2:bob@0ca", "3:ann@0c"}, s: usual, take: []int64{1}},
		"collect ends at its bytes":               {rows: []string{"1:ann@0c", "2:bob@0c", "3:ann@0c"}, s: small, take: []int64{1, 2}},
		"collect leaves an open window":           {rows: []string{"1:ann@0c", "2:bob@0ct"}, s: usual, now: 10, take: []int64{1}},
		"announcements of one sender share":       {rows: []string{"1:ann@0g", "2:ann@0g", "3:bob@0g"}, s: usual, take: []int64{1, 2}},
		"a running turn keeps the next":           {rows: []string{"2:ann@0"}, s: usual, st: scheduler.SessionState{Running: 1}},
		"a group has several turns":               {rows: []string{"3:ann@0"}, s: group, st: scheduler.SessionState{Running: 2}, take: []int64{3}},
		"a large history has one":                 {rows: []string{"3:ann@0"}, s: group, st: scheduler.SessionState{Running: 2, Large: true}},
		"an interrupt waits although one fits":    {rows: []string{"1:ann@0i"}, s: group, st: scheduler.SessionState{Running: 1}},
		"an announcement interrupts nothing":      {rows: []string{"1:ann@0gi"}, s: group, st: scheduler.SessionState{Running: 1}, take: []int64{1}},
		"a turn takes what is steered into it":    {rows: []string{"1:ann@0s"}, s: group, st: scheduler.SessionState{Running: 1, Inputs: []string{""}}},
		"steered into no other thread":            {rows: []string{"1:ann@0s"}, s: group, st: scheduler.SessionState{Running: 1, Inputs: []string{"x"}}, take: []int64{1}},
		"a stop covers what came before it":       {rows: []string{"1:ann@0", "2:ann@0"}, s: usual, st: scheduler.SessionState{Cutoff: 1}, stopped: []int64{1}, take: []int64{2}},
		"a run that began before stays together":  {rows: []string{"1:ann@0/m2", "2:ann@0/m2", "3:ann@0"}, s: usual, take: []int64{1, 2}},
		"and so does one with a message between":  {rows: []string{"1:ann@0/m1", "2:ann@0", "3:ann@0s/m1"}, s: usual, take: []int64{1, 3}},
		"a typed message of a run has no window":  {rows: []string{"1:ann@0t/m1"}, s: usual, take: []int64{1}},
		"a busy session that collects waits less": {rows: []string{"1:ann@0tc"}, s: usual, st: scheduler.SessionState{Running: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := scheduler.Next(rowsOf(t, c.rows...), c.s, c.st, after(c.now))
			until := 0
			if !d.Until.IsZero() {
				until = int(d.Until.Sub(start()).Milliseconds())
			}
			if !slices.Equal(seqsOf(d.Take), c.take) || until != c.until || !slices.Equal(d.Stopped, c.stopped) {
				t.Errorf("takes %v, waits until %d, stopped %v, want %v, %d and %v", seqsOf(d.Take), until, d.Stopped, c.take, c.until, c.stopped)
			}
		})
	}
}

func TestTurnIsSteeredByTheFirstMessagesOfItsThread(t *testing.T) {
	t.Parallel()
	set := scheduler.DefaultSettings()
	for name, c := range map[string]struct {
		rows []string
		mode scheduler.QueueMode
		want []int64
	}{
		"those that ask for it":           {rows: []string{"2:ann@0s", "3:bob@0s"}, want: []int64{2, 3}},
		"those of a session that steers":  {rows: []string{"2:ann@0"}, mode: scheduler.ModeSteer, want: []int64{2}},
		"none that would overtake":        {rows: []string{"2:ann@0", "3:ann@0s"}},
		"up to one that is alone":         {rows: []string{"2:ann@0s", "3:ann@0sa", "4:ann@0s"}, want: []int64{2}},
		"no run that began before":        {rows: []string{"2:ann@0s/m2"}},
		"no announcement":                 {rows: []string{"2:task@0gs"}},
		"one whose mode is another waits": {rows: []string{"2:ann@0c"}, mode: scheduler.ModeSteer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := seqsOf(scheduler.SteeredInto(rowsOf(t, c.rows...), "", set, c.mode)); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	if got := scheduler.SteeredInto(rowsOf(t, "2:ann@0s"), "another thread", set, ""); len(got) != 0 {
		t.Errorf("of another thread: %v", got)
	}
}

func TestAdmitKeepsTheQueueWithinItsCap(t *testing.T) {
	t.Parallel()
	old := scheduler.DefaultSettings()
	old.Cap = 2
	refusing, none := old, old
	refusing.DropNew, none.Cap = true, -1
	busy := scheduler.SessionState{Running: 1}
	for name, c := range map[string]struct {
		rows       []string
		m          string
		s          scheduler.Settings
		st         scheduler.SessionState
		ended      []int64
		refused    bool
		superseded bool
	}{
		"there is a place":                      {rows: []string{"2:ann@0"}, m: "3:ann@1", s: old, st: busy},
		"the oldest makes room":                 {rows: []string{"2:ann@0", "3:ann@0"}, m: "4:ann@1", s: old, st: busy, ended: []int64{2}},
		"all that are too many":                 {rows: []string{"2:ann@0", "3:ann@0", "4:ann@0"}, m: "5:ann@1", s: old, st: busy, ended: []int64{2, 3}},
		"a unit makes room as a whole":          {rows: []string{"2:ann@0t", "3:ann@1t", "4:bob@2"}, m: "5:ann@3", s: old, st: busy, ended: []int64{2, 3}},
		"a queue that refuses":                  {rows: []string{"2:ann@0", "3:ann@0"}, m: "4:ann@1", s: refusing, st: busy, refused: true},
		"no bound":                              {rows: []string{"2:ann@0", "3:ann@0"}, m: "4:ann@1", s: none, st: busy},
		"one that joins needs no place":         {rows: []string{"2:ann@0", "3:ann@0t"}, m: "4:ann@1t", s: refusing, st: busy},
		"the first has a slot":                  {rows: []string{"1:ann@0", "2:ann@0"}, m: "3:ann@1", s: refusing},
		"and is never dropped":                  {rows: []string{"1:ann@0", "2:ann@0", "3:ann@0"}, m: "4:ann@1", s: old, ended: []int64{2}},
		"a run that began before has its place": {rows: []string{"1:ann@0/m1", "2:ann@0/m1", "3:ann@0"}, m: "4:ann@1", s: refusing, st: busy},
		"an announcement needs none":            {rows: []string{"2:ann@0", "3:ann@0"}, m: "4:task@1g", s: refusing, st: busy},
		"and is not dropped":                    {rows: []string{"2:task@0g", "3:ann@0", "4:ann@0"}, m: "5:ann@1", s: old, st: busy, ended: []int64{3}},
		"an interrupt ends what waits":          {rows: []string{"2:ann@0", "3:ann@0"}, m: "4:ann@1i", s: refusing, st: busy, ended: []int64{2, 3}, superseded: true},
		"also one with a place":                 {rows: []string{"2:ann@0/m2"}, m: "3:ann@1i", s: old, ended: []int64{2}, superseded: true},
		"one that joins a window ends nothing":  {rows: []string{"1:ann@0ti"}, m: "2:ann@1ti", s: old},
		"but it does while a turn runs":         {rows: []string{"2:ann@0ti"}, m: "3:ann@1ti", s: old, st: busy, ended: []int64{2}, superseded: true},
		"the session interrupts":                {rows: []string{"2:ann@0"}, m: "3:ann@1", s: old, st: scheduler.SessionState{Running: 1, Mode: scheduler.ModeInterrupt}, ended: []int64{2}, superseded: true},
		"the message asks for another mode":     {rows: []string{"2:ann@0"}, m: "3:ann@1c", s: old, st: scheduler.SessionState{Running: 1, Mode: scheduler.ModeInterrupt}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := scheduler.Admit(rowsOf(t, c.rows...), &rowsOf(t, c.m)[0], c.s, c.st)
			if !slices.Equal(a.Ended, c.ended) || a.Refused != c.refused || a.Superseded != c.superseded {
				t.Errorf("%+v, want ended %v, refused %t, superseded %t", a, c.ended, c.refused, c.superseded)
			}
		})
	}
}
