// Package history makes earlier conversations easy to find: it keeps the search index up to date,
// and makes summaries by day, week and month.
//
// # The index
//
// [Indexer] is the loop that adds new entries of transcripts to the search index, every five
// minutes and up to a minute more. One of several replicas does it: the one that holds the lease
// [IndexLease]. Two replicas that do it at once only waste time, because the store decides what is
// indexed.
//
// Accepting a message does not touch the index, and the results of a search do not depend on the
// loop: it reads entries that are not indexed yet from the transcripts. The loop determines only
// how fast a search is.
//
// # The table of contents
//
// [Rollup] makes summaries with the agent of its caller, a built-in job: of each session and day;
// from these, of each week of an owner; from the weeks, of each month. Weeks begin on Monday and
// belong to the month of their Thursday, as ISO 8601 assigns them to years, so that each period
// consists of whole ones. It makes the lower levels first, in each level the oldest period first.
// It waits for an hour after the end of a day, and for a day after the end of a week or month.
//
// The store decides what is due; this package has no state for it. A session has the number up to
// which its entries are in a part, and a week or month is due when one of its parts has changed. So
// a missed night, an entry with an old time, a deletion and an interrupted run need no special
// treatment.
//
// A conversation that does not fit the window of the agent is summarised in steps; each step
// includes the summary of the previous one. A summary that the agent refuses because of the content
// is skipped and retried by the next run; any other failure ends the run.
//
// # Crash points
//
// The store commits the index in small transactions, each with the position that it has reached.
// After a process that ended between two of them, the next commit continues there.
//
// The part of a day is stored with the number up to which it goes, if that number has not changed
// since it was read: only one of two processes, or of a process and its successor after a kill,
// adds the part. A week or month is claimed before it is read. Each change of its parts withdraws
// the claim, and only the holder of the claim stores the summary. A killed process keeps its claims
// for [store.TocClaimTime]. A kill loses the requests whose results were not stored.
//
// # Goroutines and the end
//
// [Indexer.Run] and [Rollup.Run] run on the goroutine of their caller. After the end of the context
// a commit ends after its current transaction, a roll-up with the canceled request. The package
// starts no goroutine.
//
// # What it does not do
//
// It neither calls a model nor checks a budget: [agent.Summariser], the turn of the job, does. It
// makes no summaries of the runs of jobs and of sub-turns.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// IndexLease is the named lease of the replica that indexes.
const IndexLease = "search-index"

// The schedule of the index.
const (
	IndexEvery  = 5 * time.Minute
	IndexJitter = time.Minute
)

// IndexerConfig of an [Indexer]. All members without a default are required.
type IndexerConfig struct {
	Store store.Store
	// Lease takes or confirms a named lease for this process; ok is false while another replica
	// holds it.
	Lease func(ctx context.Context, name string) (ok bool, err error)
	// Jitter returns a random part of d, to spread replicas; nil means a random source.
	Jitter func(d time.Duration) time.Duration
	// Log receives failures; nil discards.
	Log *slog.Logger
}

// Indexer keeps the search index up to date.
type Indexer struct{ cfg IndexerConfig }

// NewIndexer makes an indexer; [Indexer.Run] is its loop.
func NewIndexer(cfg IndexerConfig) *Indexer {
	if cfg.Jitter == nil {
		cfg.Jitter = func(d time.Duration) time.Duration { return rand.N(d) } // spread, not secrecy
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Indexer{cfg: cfg}
}

// Run indexes until ctx is done: first within [IndexJitter], then every [IndexEvery] and up to
// [IndexJitter] more.
func (x *Indexer) Run(ctx context.Context) {
	timer := time.NewTimer(x.cfg.Jitter(IndexJitter))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		x.commit(ctx)
		timer.Reset(IndexEvery + x.cfg.Jitter(IndexJitter))
	}
}

// commit indexes new entries if this process holds the lease.
func (x *Indexer) commit(ctx context.Context) {
	mine, err := x.cfg.Lease(ctx, IndexLease)
	if err == nil && !mine {
		return
	}
	began, n := time.Now(), 0
	if err == nil {
		n, err = x.cfg.Store.IndexTranscripts(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		x.cfg.Log.WarnContext(ctx, "the search index was not brought up to date; trying again later, searches read the transcripts meanwhile", "indexed", n, "err", err)
	case n > 0:
		x.cfg.Log.DebugContext(ctx, "search index", "indexed", n, "took", time.Since(began).String())
	}
}

// The time after the end of a period until it is summarised.
const (
	minAgeDay   = time.Hour
	minAgeNodes = 24 * time.Hour
)

const (
	atOnce = 100 // sessions or periods in one list
	// pageRows and pageBytes bound the entries that are read at once.
	pageRows  = 500
	pageBytes = 256 << 10
	// mostRefused is the number of refused conversations after which a run ends.
	mostRefused = 20
	// waitTime is how long a run waits for another process that makes a summary before it checks
	// again, mostWaits how many times.
	waitTime  = 10 * time.Second
	mostWaits = 60
)

// RollupConfig of a [Rollup]. Store is required.
type RollupConfig struct {
	Store store.Store
	// Zone is the time zone of days; nil means UTC.
	Zone *time.Location
	// Wait waits while another process makes a summary; nil means by the clock of this host. It
	// returns the cause of ctx.
	Wait func(ctx context.Context, d time.Duration) error
	// Log receives refusals; nil discards.
	Log *slog.Logger
}

// Rollup makes the table of contents.
type Rollup struct{ cfg RollupConfig }

// NewRollup makes a Rollup. It has no state, and several may work at once.
func NewRollup(cfg RollupConfig) *Rollup {
	cfg.Zone = cmp.Or(cfg.Zone, time.UTC)
	if cfg.Wait == nil {
		cfg.Wait = retry.Sleep
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Rollup{cfg: cfg}
}

// Run makes all summaries of a level that are due, after those of the lower levels, the oldest
// period first. It checks ctx between two requests to the agent; summaries that were made are kept.
// The report is for the ledger and is also returned with an error.
func (r *Rollup) Run(ctx context.Context, level store.TocLevel, by agent.Summariser) (report string, err error) {
	now, err := r.cfg.Store.Now(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the clock: %w", err)
	}
	x := &rolling{Rollup: r, by: by, refused: map[string]bool{}}
	x.room, x.tokens = by.Room()
	err = x.days(ctx, startOf(now.Add(-minAgeDay), r.cfg.Zone))
	for _, l := range []store.TocLevel{store.TocWeek, store.TocMonth} {
		if err == nil && (level == store.TocMonth || level == l) {
			err = x.nodes(ctx, l, before(l, startOf(now.Add(-minAgeNodes), r.cfg.Zone)))
		}
	}
	return x.report(), cmp.Or(err, x.refusal)
}

// rolling is the state of one run.
type rolling struct {
	*Rollup

	by           agent.Summariser
	room, tokens int
	made         [3]int // summaries of sessions, weeks, months
	// refused has the names of refused summaries, which the next run retries; refusal is the first
	// error.
	refused map[string]bool
	refusal error
}

func (x *rolling) report() string {
	text := fmt.Sprintf("summaries made: %d of a session and a day, %d of a week, %d of a month", x.made[0], x.made[1], x.made[2])
	if n := len(x.refused); n > 0 {
		text += fmt.Sprintf("; the agent refused %d, which are tried again the next time", n)
	}
	return text
}

// pass records a summary that the agent refused because of the content, so that it does not block
// other summaries; any other error ends the run.
func (x *rolling) pass(ctx context.Context, what string, err error) error {
	e, ok := errors.AsType[*agent.Error](err)
	if !ok || ctx.Err() != nil {
		return err
	}
	switch e.Reason {
	case chat.FailRefusal, chat.FailBadResponse, chat.FailBadRequest, chat.FailContextLength, chat.FailOutputLimit:
	default:
		return err
	}
	x.refused[what] = true
	x.refusal = cmp.Or(x.refusal, err)
	x.cfg.Log.WarnContext(ctx, "the agent refused to make a summary; trying again the next time", "of", what, "err", err)
	if len(x.refused) >= mostRefused {
		return x.refusal
	}
	return nil
}

// days summarises the entries before a moment, day by day, the oldest first.
func (x *rolling) days(ctx context.Context, before time.Time) error {
	var last store.TocBehind
	for {
		list, err := x.cfg.Store.TocBehind(ctx, before, atOnce+len(x.refused))
		if err != nil {
			return fmt.Errorf("looking for what is in no summary: %w", err)
		}
		day := ""
		for _, b := range list {
			if x.refused[b.Session.String()] {
				continue
			}
			if day == "" {
				if b == last {
					return fmt.Errorf("the summary of %s, %s cannot be stored", b.Session, dayOf(b.At, x.cfg.Zone))
				}
				day, last = dayOf(b.At, x.cfg.Zone), b
			}
			if day != dayOf(b.At, x.cfg.Zone) {
				break
			}
			if err := x.pass(ctx, b.Session.String(), x.session(ctx, b, before)); err != nil {
				return err
			}
		}
		if day == "" {
			return nil
		}
	}
}

// session adds the entries of a session to the part of one day: those after the last entry of the
// part, up to the first entry of another day. Each step is a checkpoint. It ends when another
// process was first, or the session was deleted meanwhile.
func (x *rolling) session(ctx context.Context, b store.TocBehind, before time.Time) error {
	p := store.TocPart{Session: b.Session, Owner: b.Owner, Day: dayOf(b.At, x.cfg.Zone), After: b.After}
	date, err := time.Parse(dayForm, p.Day)
	if err != nil {
		return fmt.Errorf("reading the day %q: %w", p.Day, err)
	}
	p.Week, p.Month = weekOf(date), monthOf(date)
	old, err := x.cfg.Store.Toc(ctx, store.TocQuery{Level: store.TocDay, Visible: b.Owner, Session: b.Session, From: p.Day, To: p.Day})
	if err != nil {
		return fmt.Errorf("reading a summary: %w", err)
	}
	text := ""
	if len(old) > 0 {
		text = old[0].Text
	}
	for {
		f := x.fold(text)
		more, err := x.read(ctx, &p, f, before)
		if err != nil || p.Entries == 0 {
			return err
		}
		if p.Text = ""; f.items > 0 {
			if p.Text, err = f.ask(ctx, b.Session, "on "+p.Day); err != nil {
				return err
			}
		}
		added, err := x.cfg.Store.PutTocPart(ctx, p)
		if err != nil {
			return fmt.Errorf("storing a summary: %w", err)
		}
		if p.Text != "" && added {
			text = p.Text
			x.made[0]++
		}
		if !added || !more {
			return nil
		}
		p.After = p.To
	}
}

// read adds the entries of the day after p.After to a fold, as far as they fit. more is true if
// some did not fit.
func (x *rolling) read(ctx context.Context, p *store.TocPart, f *fold, before time.Time) (more bool, err error) {
	p.Entries = 0
	for after := p.After; ; {
		page, err := x.cfg.Store.TocEntries(ctx, p.Session, after, pageRows, pageBytes)
		if err != nil {
			return false, fmt.Errorf("reading what is in no summary: %w", err)
		}
		for _, e := range page {
			if !e.At.Before(before) || dayOf(e.At, x.cfg.Zone) != p.Day {
				return false, nil
			}
			if spoken := !e.Command && e.Covers.To == 0 && strings.TrimSpace(e.Text) != ""; spoken && !f.add(e.TranscriptEntry) {
				return true, nil
			}
			if p.Entries == 0 {
				p.From = e.Seq
			}
			after, p.To, p.LastID = e.Seq, e.Seq, e.SessionID
			p.Entries++
		}
		if len(page) == 0 {
			return false, nil
		}
	}
}

// nodes makes the weeks or the months up to a period.
func (x *rolling) nodes(ctx context.Context, level store.TocLevel, upto string) error {
	for waits := 0; ; {
		list, err := x.cfg.Store.TocDue(ctx, level, upto, atOnce+len(x.refused))
		if err != nil {
			return fmt.Errorf("looking for summaries that are due: %w", err)
		}
		left, done := 0, 0
		for _, ref := range list {
			what := ref.Owner + ", " + ref.Period
			if x.refused[what] {
				continue
			}
			left++
			ok, err := x.node(ctx, ref)
			if err = x.pass(ctx, what, err); err != nil {
				return err
			}
			if ok {
				done++
			}
		}
		switch {
		case left == 0:
			return nil
		case done > 0:
			waits = 0
		case waits == mostWaits:
			return errBusy
		default:
			waits++
			if err := x.cfg.Wait(ctx, waitTime); err != nil {
				return err
			}
		}
	}
}

// errBusy ends a run that has waited too long for another process.
var errBusy = &agent.Error{Reason: chat.FailTimeout, Message: "another process makes these summaries; the next run makes what is left"}

// node makes one week or month. ok is false when its parts have changed meanwhile, or another
// process makes it.
func (x *rolling) node(ctx context.Context, ref store.TocRef) (ok bool, err error) {
	claim := uuid.NewString()
	if ok, err = x.cfg.Store.BeginTocNode(ctx, ref, claim); err != nil || !ok {
		return false, wrapped("beginning a summary", err)
	}
	text, err := x.textOf(ctx, ref)
	if err != nil {
		return false, err
	}
	if ok, err = x.cfg.Store.EndTocNode(ctx, ref, claim, text); err != nil || !ok {
		return false, wrapped("storing a summary", err)
	}
	if text != "" && ref.Level == store.TocWeek {
		x.made[1]++
	} else if text != "" {
		x.made[2]++
	}
	return true, nil
}

func wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// textOf makes the summary of a week or a month from its parts; "" if it has none. A single part is
// used unchanged.
func (x *rolling) textOf(ctx context.Context, ref store.TocRef) (string, error) {
	level, periods, err := parts(ref)
	if err != nil {
		return "", err
	}
	f, when := x.fold(""), "in "+ref.Period
	single, items := "", 0
	for _, period := range periods {
		for offset := 0; ; {
			page, err := x.cfg.Store.Toc(ctx, store.TocQuery{Level: level, Visible: ref.Owner, From: period, To: period, Limit: store.MaxTocNodes, Offset: offset})
			if err != nil {
				return "", fmt.Errorf("reading summaries: %w", err)
			}
			for _, n := range page {
				single = n.Text
				items++
				e := chat.TranscriptEntry{Role: chat.RoleSystem, Text: strings.TrimSpace(period+" "+sessionOf(n)) + ": " + n.Text}
				if f.add(e) {
					continue
				}
				text, err := f.ask(ctx, chat.SessionKey{}, when)
				if err != nil {
					return "", err
				}
				f = x.fold(text)
				f.add(e)
			}
			if offset += len(page); len(page) == 0 {
				break
			}
		}
	}
	switch items {
	case 0, 1:
		return single, nil
	}
	return f.ask(ctx, chat.SessionKey{}, when)
}

func sessionOf(n store.TocNode) string {
	if n.Session.IsZero() {
		return ""
	}
	return n.Session.String()
}

const (
	rollupPrompt = "You keep the table of contents of conversations. People and agents look up in your summaries when something was said, long after it was."
	// rollupQuestion is formatted with the period and the largest number of words.
	rollupQuestion = "Write a summary of what was said above %s, in at most %d words: topics, decisions, results, names, numbers, dates, promises, and what is " +
		"open. Keep what was in an earlier summary. Do not answer anything in it. Write the summary only."
	beforeHead = "Summary of what was said before: "
)

// fold collects what fits one request to the agent: an earlier summary, and the entries after it.
type fold struct {
	*rolling

	list  []chat.TranscriptEntry
	left  int // tokens
	items int // without the earlier summary
}

func (x *rolling) fold(earlier string) *fold {
	f := &fold{rolling: x, left: x.room}
	if earlier != "" {
		e := chat.TranscriptEntry{Role: chat.RoleSystem, Text: beforeHead + earlier}
		f.list = append(f.list, e)
		f.left -= agent.EstimateEntry(e)
	}
	return f
}

// add takes an entry; false if it does not fit. The first entry is always taken, and cut if it is
// too long.
func (f *fold) add(e chat.TranscriptEntry) bool {
	e.Tokens = 0
	cost := agent.EstimateEntry(e)
	if cost > f.left {
		if f.items > 0 {
			return false
		}
		e.Text = chat.Cut(e.Text, max(f.left, f.tokens)) // an estimate counts no more than a token for a byte
		cost = agent.EstimateEntry(e)
	}
	f.list = append(f.list, e)
	f.left -= cost
	f.items++
	return true
}

// ask requests the summary from the agent.
func (f *fold) ask(ctx context.Context, session chat.SessionKey, when string) (string, error) {
	return f.by.Summarise(ctx, agent.Summary{
		Session: session, Prompt: rollupPrompt, Question: fmt.Sprintf(rollupQuestion, when, f.tokens/2), Conversation: f.list, Tokens: f.tokens,
	})
}

const (
	dayForm   = "2006-01-02"
	monthForm = "2006-01"
)

// dayOf returns the day of a moment in a zone.
func dayOf(t time.Time, zone *time.Location) string { return t.In(zone).Format(dayForm) }

// startOf returns the first moment of the day of t in a zone.
func startOf(t time.Time, zone *time.Location) time.Time {
	y, m, d := t.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, zone)
}

// weekOf returns the ISO 8601 week of a date, which begins on Monday.
func weekOf(date time.Time) string {
	year, week := date.ISOWeek()
	return fmt.Sprintf("%d-W%02d", year, week)
}

// monthOf returns the month of the week of a date: the one that contains its Thursday. So each week
// belongs to one month, as it belongs to one year.
func monthOf(date time.Time) string { return monday(date).AddDate(0, 0, 3).Format(monthForm) }

// monday returns the first day of the week of a date.
func monday(date time.Time) time.Time { return date.AddDate(0, 0, -(int(date.Weekday())+6)%7) }

// before returns the last period of a level all of whose days are before the day of a date.
func before(level store.TocLevel, date time.Time) string {
	switch level {
	case store.TocWeek:
		return weekOf(monday(date).AddDate(0, 0, -1))
	case store.TocMonth:
		thursday := monday(date).AddDate(0, 0, 3)
		return thursday.AddDate(0, 0, -thursday.Day()).Format(monthForm)
	default:
		return date.AddDate(0, 0, -1).Format(dayForm)
	}
}

// parts returns the periods of which a week or a month consists, the oldest first.
func parts(ref store.TocRef) (level store.TocLevel, periods []string, err error) {
	if ref.Level == store.TocWeek {
		var year, week int
		if _, err := fmt.Sscanf(ref.Period, "%d-W%d", &year, &week); err != nil {
			return "", nil, fmt.Errorf("reading the week %q: %w", ref.Period, err)
		}
		first := monday(time.Date(year, 1, 4, 0, 0, 0, 0, time.UTC)).AddDate(0, 0, 7*(week-1))
		for i := range 7 {
			periods = append(periods, first.AddDate(0, 0, i).Format(dayForm))
		}
		return store.TocDay, periods, nil
	}
	first, err := time.Parse(monthForm, ref.Period)
	if err != nil {
		return "", nil, fmt.Errorf("reading the month %q: %w", ref.Period, err)
	}
	for day := monday(first); monthOf(day) <= ref.Period; day = day.AddDate(0, 0, 7) {
		if monthOf(day) == ref.Period {
			periods = append(periods, weekOf(day))
		}
	}
	return store.TocWeek, periods, nil
}
