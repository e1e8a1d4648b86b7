package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// start is when the first message of a table was accepted.
func start() time.Time { return time.UnixMilli(1_700_000_000_000) }

func after(ms int) time.Time { return start().Add(time.Duration(ms) * time.Millisecond) }

// rowsOf makes waiting messages from words such as "3:ann@500t": number 3 of ann, accepted after
// 500 ms. The letters say: t typed, a alone, g gathers, i mode interrupt, c collect, s steer; a word
// behind a slash is the run that took it before.
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
		d := scheduler.Next(rowsOf(t, c.rows...), c.s, c.st, after(c.now))
		until := 0
		if !d.Until.IsZero() {
			until = int(d.Until.Sub(start()).Milliseconds())
		}
		if !slices.Equal(seqsOf(d.Take), c.take) || until != c.until || !slices.Equal(d.Stopped, c.stopped) {
			t.Errorf("%s: takes %v, waits until %d, stopped %v, want %v, %d and %v", name, seqsOf(d.Take), until, d.Stopped, c.take, c.until, c.stopped)
		}
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
		a := scheduler.Admit(rowsOf(t, c.rows...), &rowsOf(t, c.m)[0], c.s, c.st)
		if !slices.Equal(a.Ended, c.ended) || a.Refused != c.refused || a.Superseded != c.superseded {
			t.Errorf("%s: %+v, want ended %v, refused %t, superseded %t", name, a, c.ended, c.refused, c.superseded)
		}
	}
}

// twin gives one history to the scheduler and to the rows, and compares what becomes of each
// message. The lanes never fill, because a decision about rows says nothing about slots.
type twin struct {
	rt       *rapid.T
	s        *sched
	sessions map[string]*twinSession
	started  chan begunTurn // turns of the scheduler since the last comparison
	quit     chan struct{}
}

// begunTurn is a turn of the scheduler. It returns when over is closed, whatever its context says.
type begunTurn struct {
	*turn

	over chan struct{}
}

// run is the Run of the turns.
func (w *twin) run(_ context.Context, t *turn) error {
	over := make(chan struct{})
	w.started <- begunTurn{t, over}
	select {
	case <-over:
	case <-w.quit:
	}
	return nil
}

// twinSession is a session as rows.
type twinSession struct {
	set     scheduler.Settings
	modes   []scheduler.QueueMode // of its messages
	rows    []scheduler.Row
	last    int64
	cutoff  int64
	running []*twinTurn
}

// twinTurn is a running turn: by the rows, and as the scheduler has begun it.
type twinTurn struct {
	begunTurn

	ids, thread string
	input       bool // it takes messages
}

func (x *twinSession) state() scheduler.SessionState {
	st := scheduler.SessionState{Running: len(x.running), Last: x.last, Cutoff: x.cutoff}
	for _, t := range x.running {
		if t.input && t.Cause() == nil {
			st.Inputs = append(st.Inputs, t.thread)
		}
	}
	return st
}

// decide lets the rows decide until nothing can start, and compares the turns with those of the
// scheduler.
func (w *twin) decide() {
	synctest.Wait()
	began := map[string][]begunTurn{}
	for len(w.started) > 0 {
		t := <-w.started
		began[t.Session()] = append(began[t.Session()], t)
	}
	for key, x := range w.sessions {
		for {
			d := scheduler.Next(x.rows, x.set, x.state(), time.Now())
			x.remove(d.Stopped)
			x.remove(seqsOf(d.Take))
			if len(d.Take) == 0 {
				break
			}
			x.running = append(x.running, &twinTurn{ids: fmt.Sprint(seqsOf(d.Take)), thread: d.Take[len(d.Take)-1].Thread})
		}
		fresh := slices.DeleteFunc(slices.Clone(x.running), func(t *twinTurn) bool { return t.turn != nil })
		slices.SortFunc(began[key], func(a, b begunTurn) int { return int(a.SeqFrom() - b.SeqFrom()) })
		var want, got []string
		for _, t := range fresh {
			want = append(want, t.ids)
		}
		for i, t := range began[key] {
			var seqs []int64
			for _, it := range t.Items() {
				seqs = append(seqs, it.Seq)
			}
			got = append(got, fmt.Sprint(seqs))
			if i < len(fresh) {
				fresh[i].begunTurn = t
			}
		}
		if !slices.Equal(got, want) {
			w.rt.Fatalf("%s with %+v began %v, by the rows %v; they wait: %+v", key, x.set, got, want, x.rows)
		}
	}
}

func (x *twinSession) remove(seqs []int64) {
	x.rows = slices.DeleteFunc(slices.Clone(x.rows), func(r scheduler.Row) bool { return slices.Contains(seqs, r.Seq) })
}

// ended compares waiting messages that one step has ended.
func (w *twin) ended(what string, got []scheduler.Ended[string], want []int64) {
	var seqs []int64
	for _, e := range got {
		seqs = append(seqs, e.Item.Seq)
	}
	if !slices.Equal(seqs, want) {
		w.rt.Fatalf("%s ended %v, by the rows %v", what, seqs, want)
	}
}

func (w *twin) pick() (string, *twinSession) {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.rt, "session")
	return key, w.sessions[key]
}

func (w *twin) submit() {
	key, x := w.pick()
	mode := rapid.SampledFrom(x.modes).Draw(w.rt, "mode")
	r := scheduler.Row{
		Seq: x.last + 1, Accepted: time.Now(), Mode: mode, Lane: rapid.SampledFrom([]string{"main", "main", "side"}).Draw(w.rt, "lane"),
		Sender: rapid.SampledFrom([]string{"ann", "bob"}).Draw(w.rt, "sender"), Thread: rapid.SampledFrom([]string{"", "", "x"}).Draw(w.rt, "thread"),
		Size: rapid.IntRange(1, 20).Draw(w.rt, "size"), Alone: rapid.IntRange(0, 5).Draw(w.rt, "alone") == 0, Gathers: rapid.IntRange(0, 5).Draw(w.rt, "gathers") == 0,
	}
	r.Typed = !r.Gathers && (mode == scheduler.ModeQueue || mode == scheduler.ModeFollowup) && rapid.IntRange(0, 2).Draw(w.rt, "typed") > 0
	a := scheduler.Admit(x.rows, &r, x.set, x.state())
	if a.Refused {
		return
	}
	if !a.Superseded {
		for _, seq := range a.Ended {
			if _, ok := w.s.Drop(key, seq); !ok {
				w.rt.Fatalf("%s has no message %d to drop", key, seq)
			}
		}
	}
	set := x.set.For(&r, "")
	sub, err := w.s.Submit(item{
		Session: key, ID: id(key, r.Seq), Seq: r.Seq, Settings: &set, Lane: r.Lane, Sender: r.Sender, Thread: r.Thread, Size: r.Size,
		Typed: r.Typed, NoMerge: r.Alone, Gathers: r.Gathers,
	})
	if err != nil {
		w.rt.Fatal(err)
	}
	if a.Superseded {
		w.ended("interrupt", sub.Ended, a.Ended)
	} else {
		w.ended("message", sub.Ended, nil)
	}
	x.remove(a.Ended)
	x.rows, x.last = append(x.rows, r), r.Seq
}

func (w *twin) stop() {
	key, x := w.pick()
	stopped := w.s.Stop(key, "ann")
	var want []int64
	if list := scheduler.Units(x.rows, x.set, x.state()); len(stopped.Running) == 0 && len(list) > 0 {
		want = seqsOf(list[0].Rows)
	}
	w.ended("stop", stopped.Ended, want)
	x.remove(want)
}

// turn picks a running turn of a session.
func (w *twin) turn(do func(key string, x *twinSession, t *twinTurn)) {
	key, x := w.pick()
	if len(x.running) > 0 {
		do(key, x, rapid.SampledFrom(x.running).Draw(w.rt, "turn"))
	}
}

// steps are the actions of the histories.
func (w *twin) steps() map[string]func(*rapid.T) {
	step := func(f func()) func(*rapid.T) { return func(*rapid.T) { f() } }
	back := step(func() {
		w.turn(func(_ string, x *twinSession, t *twinTurn) {
			close(t.over)
			x.running = slices.DeleteFunc(x.running, func(o *twinTurn) bool { return o == t })
		})
	})
	return map[string]func(*rapid.T){
		"submit": step(w.submit), "submit2": step(w.submit), "submit3": step(w.submit), "return": back, "return2": back, "stop": step(w.stop),
		"pass": step(func() { w.pass(time.Duration(rapid.IntRange(1, 500).Draw(w.rt, "ms")) * time.Millisecond) }),
		"command": step(func() {
			key, x := w.pick()
			x.last++
			w.s.Cut(key)
		}),
		"stop_all": step(func() {
			key, x := w.pick()
			w.ended("stop of all", w.s.StopAll(key, "ann", x.last).Ended, seqsOf(x.rows))
			x.cutoff = x.last
		}),
		"input": step(func() {
			w.turn(func(_ string, x *twinSession, t *twinTurn) {
				t.AcceptInput()
				t.input = true
				for _, it := range t.TakeInput() {
					if x.rows[0].Seq != it.Seq || it.Thread != t.thread {
						w.rt.Fatalf("message %d was steered into a turn of thread %q, before %+v", it.Seq, t.thread, x.rows[0])
					}
					x.rows = x.rows[1:]
				}
			})
		}),
		"": func(*rapid.T) { w.decide() },
	}
}

// pass lets time pass, and decides whenever a window of the rows ends.
func (w *twin) pass(d time.Duration) {
	for to := time.Now().Add(d); ; {
		next := to
		for _, x := range w.sessions {
			if until := scheduler.Next(x.rows, x.set, x.state(), time.Now()).Until; !until.IsZero() && until.Before(next) {
				next = until
			}
		}
		pass(time.Until(next))
		w.decide()
		if !next.Before(to) {
			return
		}
	}
}

// One history is given to the scheduler and to Next and Admit. The differences that the package
// comment names are left out: typed messages of modes whose window depends on the running turns, or
// that gather, and single messages that leave an open window.
func TestRowsDecideAsTheSchedulerDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		sessions := map[string]*twinSession{}
		for _, key := range []string{"a", "b", "c"} {
			set := scheduler.Settings{
				Debounce: 300 * time.Millisecond, Cap: rapid.IntRange(2, 6).Draw(rt, "cap"), DropNew: rapid.Bool().Draw(rt, "drop_new"),
				MaxConcurrent: rapid.IntRange(1, 3).Draw(rt, "max_concurrent"), BatchMessages: rapid.IntRange(1, 4).Draw(rt, "batch"), BatchBytes: rapid.SampledFrom([]int{-1, 30}).Draw(rt, "bytes"),
			}.Over(scheduler.DefaultSettings())
			modes := []scheduler.QueueMode{scheduler.ModeQueue, scheduler.ModeQueue, scheduler.ModeFollowup, scheduler.ModeInterrupt, scheduler.ModeSteer}
			if rapid.IntRange(0, 2).Draw(rt, "collects") == 0 {
				modes = []scheduler.QueueMode{scheduler.ModeCollect}
			}
			sessions[key] = &twinSession{set: set, modes: modes}
		}
		var failure any
		synctest.Test(t, func(*testing.T) {
			w := &twin{rt: rt, sessions: sessions, started: make(chan begunTurn, 1000), quit: make(chan struct{})}
			s, err := scheduler.New(context.Background(), config{Lanes: lanes(map[string]int{"main": 1000, "side": 1000}), Run: w.run})
			if err != nil {
				rt.Fatal(err)
			}
			w.s = s
			defer func() {
				failure = recover()
				close(w.quit)
				_ = s.Drain(context.Background())
			}()
			rt.Repeat(w.steps())
		})
		if failure != nil {
			panic(failure)
		}
	})
}
