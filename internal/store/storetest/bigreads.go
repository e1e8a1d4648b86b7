package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// Each test of this file fills a list with rows of 64 KiB and, between them, one that exceeds the
// bound of a read. It pages through the list and expects every row exactly once, and no page beyond
// the bound.
func bigReadTests() []test {
	return []test{
		{"TranscriptForwards", bigTranscriptForwards},
		{"TranscriptBackwards", bigTranscriptBackwards},
		{"TranscriptWithABoundOfItsOwn", transcriptWithinBytes},
		{"TranscriptCutToCharacters", transcriptCut},
		{"PendingInputs", bigPendingInputs},
		{"Sessions", bigSessions},
		{"Jobs", bigJobs},
		{"JobsWithoutPayload", jobsWithoutPayload},
		{"RunsThatAreOver", bigRunsOver},
		{"RunsThatAreUnderWay", bigRunsActive},
		{"DeletedWithALongQueue", bigDelete},
	}
}

const (
	bigRow   = 64 << 10
	bigRows  = 6
	hugeText = store.ReadBytes + bigRow
)

// bigTexts are the contents of the rows of a list; each begins with its number. The one in the
// middle exceeds the bound of a read.
func bigTexts() []string {
	var list []string
	for i := range bigRows {
		size := bigRow
		if i == bigRows/2 {
			size = hugeText
		}
		list = append(list, strconv.Itoa(i)+strings.Repeat("x", size-1))
	}
	return list
}

// paged pages through a list. next returns the contents of the page after read rows. A page has at
// most the bound, unless it is a single row.
func (w *world) paged(what, want string, next func(read int) []string) {
	w.Helper()
	var got []string
	for page := next(0); len(page) > 0; page = next(len(got)) {
		if n := len(strings.Join(page, "")); len(page) > 1 && n > store.ReadBytes {
			w.Fatalf("%s: a page of %d rows and %d bytes, want at most %d bytes", what, len(page), n, store.ReadBytes)
		}
		got = append(got, page...)
	}
	equal(w, what, firstDigits(got), want)
}

// firstDigits are the numbers of the rows, in order.
func firstDigits(texts []string) string {
	var digits strings.Builder
	for _, text := range texts {
		digits.WriteString(text[:min(1, len(text))])
	}
	return digits.String()
}

const upwards, downwards = "012345", "543210"

func (w *world) bigTranscript() chat.SessionKey {
	key := w.key()
	for _, text := range bigTexts() {
		try(w.st.AppendTranscript(w.ctx, key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: text}})).ok(w)
	}
	return key
}

func bigTranscriptForwards(w *world) {
	key := w.bigTranscript()
	w.paged("forwards", upwards, func(read int) []string {
		tr := w.transcript(store.TranscriptQuery{Session: key, After: int64(read), FromStart: read == 0, Limit: 1000})
		equal(w, "total", tr.Total, bigRows)
		return texts(tr.Entries)
	})
}

func bigTranscriptBackwards(w *world) {
	key := w.bigTranscript()
	w.paged("backwards", downwards, func(read int) []string {
		page := texts(w.transcript(store.TranscriptQuery{Session: key, Limit: 1000, Offset: read}).Entries)
		slices.Reverse(page)
		return page
	})
}

func transcriptWithinBytes(w *world) {
	key := w.key()
	w.write(key, 1, 9) // one byte each
	for _, q := range []struct {
		store.TranscriptQuery
		want []string
	}{
		{store.TranscriptQuery{MaxBytes: 3}, []string{"7", "8", "9"}},
		{store.TranscriptQuery{MaxBytes: 3, Offset: 3}, []string{"4", "5", "6"}},
		{store.TranscriptQuery{MaxBytes: 3, Limit: 2}, []string{"8", "9"}},
		{store.TranscriptQuery{MaxBytes: 3, FromStart: true}, []string{"1", "2", "3"}},
		{store.TranscriptQuery{MaxBytes: 100, FromStart: true, Limit: 4}, []string{"1", "2", "3", "4"}},
	} {
		q.Session = key
		equal(w, fmt.Sprintf("%+v", q.TranscriptQuery), texts(w.transcript(q.TranscriptQuery).Entries), q.want)
	}
	w.write(key, 12345, 1)
	equal(w, "one that is larger", texts(w.transcript(store.TranscriptQuery{Session: key, MaxBytes: 3}).Entries), []string{"12345"})
}

func transcriptCut(w *world) {
	key := w.key()
	for _, text := range []string{"ab", "abc", "äöü", "äöüß", "😀😀😀😀", strings.Repeat("ß", hugeText/2), ""} {
		try(w.st.AppendTranscript(w.ctx, key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: text}})).ok(w)
	}
	read := func(chars int) []string {
		return texts(w.transcript(store.TranscriptQuery{Session: key, MaxChars: chars}).Entries)
	}
	equal(w, "two characters and the one that shows more", read(2), []string{"ab", "abc", "äöü", "äöü", "😀😀😀", "ßßß", ""})
	equal(w, "three characters and the one that shows more", read(3), []string{"ab", "abc", "äöü", "äöüß", "😀😀😀😀", "ßßßß", ""})
	equal(w, "one character and the one that shows more", read(1), []string{"ab", "ab", "äö", "äö", "😀😀", "ßß", ""})
	tr := w.transcript(store.TranscriptQuery{Session: key, MaxChars: 1, FromStart: true})
	equal(w, "forwards", texts(tr.Entries), read(1))
	equal(w, "total", tr.Total, 7)
}

// acceptBig accepts the big messages for the sessions that session returns.
func (w *world) acceptBig(node string, session func(i int) chat.SessionKey) {
	w.Helper()
	for i, text := range bigTexts() {
		p := w.message(node, session(i))
		p.Message.Content.Text = text
		w.accept(p)
	}
}

func waitingTexts(list []store.Waiting) []string {
	var found []string
	for _, m := range list {
		found = append(found, m.Content.Text)
	}
	return found
}

func bigPendingInputs(w *world) {
	key := w.key()
	w.acceptBig(w.node(), func(int) chat.SessionKey { return key })
	w.paged("pending", upwards, func(read int) []string {
		list, total, err := w.st.PendingInputs(w.ctx, key, int64(read), 1000)
		w.ok(err)
		equal(w, "total", total, bigRows)
		return waitingTexts(list)
	})
}

func (w *world) endWaiting(key chat.SessionKey, seq int64) {
	w.Helper()
	ended := try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{seq}, Outcome: chat.OutcomeStopped, Reason: "test"})).ok(w)
	equal(w, "ended", len(ended), 1)
}

func bigSessions(w *world) {
	for _, text := range bigTexts() {
		w.clock.advance(time.Millisecond)
		w.ok(w.st.SetSession(w.ctx, w.key(), "ann", store.SessionSettings{Notes: map[string]string{"model": text}}))
	}
	for _, search := range []string{"", "AGENT"} {
		w.paged("sessions, search "+search, downwards, func(read int) (page []string) {
			list, total, err := w.st.ListSessions(w.ctx, store.SessionFilter{Search: search, Limit: 200, Offset: read})
			w.ok(err)
			equal(w, "total", total, bigRows)
			for _, s := range list {
				page = append(page, s.Notes["model"])
			}
			return page
		})
	}
}

func bigJobs(w *world) {
	for _, text := range bigTexts() {
		w.job(func(j *cron.Job) { j.Payload.Text, j.Name = text, text[:1] })
	}
	for _, f := range []cron.JobFilter{{SortBy: "name"}, {SortBy: "name", Limit: 200}, {SortBy: "name", Query: "KEY OF"}, {SortBy: "name", Query: "key of", Limit: 200}} {
		w.paged(fmt.Sprintf("jobs %+v", f), upwards, func(read int) (page []string) {
			f.Offset = read
			jobs := try(w.cron().Jobs(w.ctx, f)).ok(w)
			equal(w, "total", jobs.Total, bigRows)
			for _, j := range jobs.Jobs {
				page = append(page, j.Payload.Text)
			}
			return page
		})
	}
}

// Without their payloads all jobs fit into one page, and their other columns are complete.
func jobsWithoutPayload(w *world) {
	for _, text := range bigTexts() {
		w.job(func(j *cron.Job) { j.Payload.Text, j.Name = text, text[:1] })
	}
	for _, query := range []string{"", "key of"} {
		f := cron.JobFilter{SortBy: "name", Query: query, Limit: 200}
		var want []cron.Job
		for {
			page := try(w.cron().Jobs(w.ctx, f)).ok(w)
			if len(page.Jobs) == 0 {
				break
			}
			for _, j := range page.Jobs {
				j.Payload = cron.Payload{}
				want = append(want, j)
			}
			f.Offset += len(page.Jobs)
		}
		f.Offset, f.WithoutPayload = 0, true
		page := try(w.cron().Jobs(w.ctx, f)).ok(w)
		equal(w, "jobs in one page", page.Jobs, want)
		equal(w, "total", page.Total, bigRows)
	}
}

// runsInPages pages through the ledger.
func (w *world) runsInPages(f cron.RunFilter, want string) {
	w.Helper()
	for f.Query, f.Limit = range map[string]int{"": 0, "X": 200} {
		w.paged(fmt.Sprintf("runs %+v", f), want, func(read int) (page []string) {
			f.Offset = read
			runs := try(w.cron().Runs(w.ctx, f)).ok(w)
			equal(w, "total", runs.Total, len(want))
			for _, r := range runs.Runs {
				page = append(page, r.Error)
			}
			return page
		})
	}
}

func (w *world) bigRunsOver(j cron.Job) {
	w.Helper()
	for i, text := range bigTexts() {
		w.clock.advance(time.Millisecond)
		row := skippedRow(j, j.State.Next.Add(-time.Duration(bigRows-i)*interval), cron.ReasonOverlap)
		row.Error = text
		try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Skipped: &row, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
			return &j, nil
		}})).ok(w)
	}
}

func bigRunsOver(w *world) {
	j := w.job(nil)
	w.bigRunsOver(j)
	w.runsInPages(cron.RunFilter{JobID: j.ID, Ascending: true}, upwards)
	w.runsInPages(cron.RunFilter{JobID: j.ID}, downwards)
	w.runsInPages(cron.RunFilter{}, downwards)
}

func (w *world) bigRunsActive(node string, j cron.Job) {
	w.Helper()
	for _, text := range bigTexts() {
		w.clock.advance(time.Millisecond)
		l := w.byHand(node, j)
		w.endRun(w.begin(l), l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) {
			e.Error, e.NextAttempt = text, w.clock.now().Add(time.Hour)
		})
	}
}

func bigRunsActive(w *world) {
	node, j := w.node(), w.job(nil)
	w.bigRunsOver(j)
	w.bigRunsActive(node, j)
	w.runsInPages(cron.RunFilter{JobID: j.ID, States: []cron.RunState{cron.RunRetrying}, Ascending: true}, upwards)
	w.runsInPages(cron.RunFilter{JobID: j.ID, IncludeActive: true, Ascending: true}, upwards+upwards)
	w.runsInPages(cron.RunFilter{JobID: j.ID, IncludeActive: true}, downwards+downwards)
}

func bigDelete(w *world) {
	node, key := w.node(), w.key()
	w.acceptBig(node, func(int) chat.SessionKey { return key })
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "deleted", deleted.Deleted, true)
	equal(w, "unfinished", w.unfinished(), 0)
}

// ListsLeaveReaders floods an engine with lists that do not end: as many as there is room for run,
// one of each principal, and the reads of the gateway still find a reader. A list ends its wait
// with its context, and the next one of the principal runs.
func ListsLeaveReaders(t *testing.T, db sqlstore.Engine, readers int) {
	t.Helper()
	const each = 8
	var (
		principals = readers + 2
		ended      sync.WaitGroup
		mu         sync.Mutex
		of         = map[string]int{}
		all        int
		full, free = make(chan struct{}), make(chan struct{})
		filled     = sync.OnceFunc(func() { close(full) })
	)
	change := func(name string, by int) (mine, every int) {
		mu.Lock()
		defer mu.Unlock()
		of[name] += by
		all += by
		return of[name], all
	}
	inside := func(name string) error {
		defer change(name, -1)
		mine, every := change(name, 1)
		if mine > 1 || every > readers-2 {
			t.Errorf("%d lists of %s run, and %d of all principals", mine, name, every)
		}
		if every >= readers-2 {
			filled()
		}
		<-free
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range principals {
		name := "principal-" + strconv.Itoa(i)
		for n := range each {
			read := db.List
			if n%2 == 1 {
				read = db.Snapshot
			}
			ended.Go(func() {
				err := read(store.OnBehalfOf(ctx, name), "list", func(ctx context.Context, tx sqlstore.Tx) error {
					return tx.Query(ctx, `SELECT 1`, func(sqlstore.Row) error { return inside(name) })
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("a list failed: %v", err)
				}
			})
		}
	}
	<-full
	within, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	for range 2 * readers {
		err := db.View(within, "read", func(ctx context.Context, tx sqlstore.Tx) error {
			return tx.Query(ctx, `SELECT 1`, func(sqlstore.Row) error { return nil })
		})
		if err == nil {
			err = db.List(within, "list", func(context.Context, sqlstore.Tx) error { return nil })
		}
		if err != nil {
			t.Errorf("a read of the gateway beside the lists: %v", err)
			break
		}
	}
	cancel()
	close(free)
	ended.Wait()
	for i := range principals {
		err := db.List(store.OnBehalfOf(t.Context(), "principal-"+strconv.Itoa(i)), "list", func(context.Context, sqlstore.Tx) error { return nil })
		if err != nil {
			t.Errorf("a list after the flood: %v", err)
		}
	}
}
