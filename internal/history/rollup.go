package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

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
	// waitTime is how long a run waits for another process that makes a summary before it checks again, mostWaits how many times.
	waitTime  = 10 * time.Second
	mostWaits = 60
)

// TocStore is the part of the store that roll-ups need, see [store.Toc].
type TocStore interface {
	store.Toc

	Now(ctx context.Context) (time.Time, error)
}

// RollupConfig of a [Rollup]. Store is required.
type RollupConfig struct {
	Store TocStore
	// Zone is the time zone of days; nil means UTC.
	Zone *time.Location
	// Wait waits while another process makes a summary; nil means by the clock of this host. It returns the cause of ctx.
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

// Run makes all summaries of a level that are due, after those of the lower levels, the oldest period first. It checks ctx between two requests to
// the agent; summaries that were made are kept. The report is for the ledger and is also returned with an error.
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
	// refused has the names of refused summaries, which the next run retries; refusal is the first error.
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

// pass records a summary that the agent refused because of the content, so that it does not block other summaries; any other error ends the run.
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

// session adds the entries of a session to the part of one day: those after the last entry of the part, up to the first entry of another day. Each
// step is a checkpoint. It ends when another process was first, or the session was deleted meanwhile.
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

// read adds the entries of the day after p.After to a fold, as far as they fit. more is true if some did not fit.
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

// node makes one week or month. ok is false when its parts have changed meanwhile, or another process makes it.
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

// textOf makes the summary of a week or a month from its parts; "" if it has none. A single part is used unchanged.
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
