package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// tocPart names what a session was about on a day.
type tocPart struct {
	session chat.SessionKey
	day     string
}

// toc is the table of contents.
type toc struct {
	upto  map[chat.SessionKey]int64
	parts map[tocPart]*tocText
	nodes map[store.TocRef]*tocText
}

// tocText is a summary with what only the store knows of it. A node that was not made yet has no text.
type tocText struct {
	store.TocNode

	week, month, claim string
	claimedAt          time.Time
}

func newToc() toc {
	return toc{upto: map[chat.SessionKey]int64{}, parts: map[tocPart]*tocText{}, nodes: map[store.TocRef]*tocText{}}
}

// change notes that what the week and the month of a part are made of has changed. empty removes their texts.
func (c *toc) change(p *tocText, empty bool) {
	for _, ref := range []store.TocRef{{Owner: p.Owner, Level: store.TocWeek, Period: p.week}, {Owner: p.Owner, Level: store.TocMonth, Period: p.month}} {
		n := c.nodes[ref]
		if n == nil {
			n = &tocText{TocNode: store.TocNode{Owner: ref.Owner, Level: ref.Level, Period: ref.Period}, month: p.month}
			c.nodes[ref] = n
		}
		n.Stale, n.claim = true, ""
		if empty {
			n.Text = ""
		}
	}
}

// remove removes what a session was about.
func (c *toc) remove(key chat.SessionKey) {
	delete(c.upto, key)
	for name, p := range c.parts {
		if name.session == key {
			delete(c.parts, name)
			c.change(p, true)
		}
	}
}

// give makes what a session was about a part of what another owner has.
func (c *toc) give(key chat.SessionKey, to string) {
	for name, p := range c.parts {
		if name.session == key {
			c.change(p, true)
			p.Owner = to
			c.change(p, false)
		}
	}
}

// allEntries are the entries of all transcripts of a session behind a number, ascending, without those that a deletion kept.
func (s *Store) allEntries(se *session, after int64) (list []store.TocEntry) {
	add := func(id string, entries []chat.TranscriptEntry) {
		for _, e := range entries {
			if e.Seq > after {
				list = append(list, store.TocEntry{SessionID: id, TranscriptEntry: e})
			}
		}
	}
	for _, a := range s.archive[se.Key] {
		if !a.kept {
			add(a.id, a.entries)
		}
	}
	add(se.SessionID, se.transcript)
	slices.SortFunc(list, func(a, b store.TocEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// TocBehind lists sessions with entries that no part stands for, see store.Toc.
func (s *Store) TocBehind(ctx context.Context, before time.Time, limit int) (list []store.TocBehind, err error) {
	err = s.do(ctx, "TocBehind", func(time.Time) error {
		for key, se := range s.sessions {
			if se.Principal == "" || se.Principal == cron.SystemOwner || key.OfCronRun() || key.OfTask() {
				continue
			}
			entries := s.allEntries(se, s.toc.upto[key])
			if len(entries) > 0 && entries[0].At.Before(before) {
				list = append(list, store.TocBehind{Session: key, Owner: se.Principal, After: s.toc.upto[key], At: entries[0].At})
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b store.TocBehind) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Session.String(), b.Session.String()))
	})
	return list[:min(len(list), max(limit, 0))], err
}

// TocEntries reads entries of all transcripts of a session, see store.Toc.
func (s *Store) TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) (list []store.TocEntry, err error) {
	err = s.do(ctx, "TocEntries", func(time.Time) error {
		if se := s.sessions[key]; se != nil {
			list = s.allEntries(se, after)
		}
		list = within(list[:min(len(list), max(limit, 0))], store.NewBudget(maxBytes), func(e store.TocEntry) int { return len(e.Text) })
		return nil
	})
	return list, err
}

// PutTocPart adds entries to the part of their day, see store.Toc.
func (s *Store) PutTocPart(ctx context.Context, p store.TocPart) (added bool, err error) {
	err = s.do(ctx, "PutTocPart", func(now time.Time) error {
		se := s.sessions[p.Session]
		if se == nil || se.Principal != p.Owner || s.toc.upto[p.Session] != p.After || !slices.ContainsFunc(s.allEntries(se, p.After), func(e store.TocEntry) bool {
			return e.Seq == p.To && e.SessionID == p.LastID
		}) {
			return nil
		}
		added = true
		s.toc.upto[p.Session] = p.To
		if p.Text == "" {
			return nil
		}
		name := tocPart{p.Session, p.Day}
		part := s.toc.parts[name]
		if part == nil {
			part = &tocText{TocNode: store.TocNode{Level: store.TocDay, Period: p.Day, Session: p.Session, From: p.From}}
			s.toc.parts[name] = part
		}
		part.Owner, part.week, part.month, part.Text, part.MadeAt = p.Owner, p.Week, p.Month, p.Text, now
		part.To, part.Entries, part.Made = p.To, part.Entries+p.Entries, part.Made+1
		s.toc.change(part, false)
		return nil
	})
	return added, err
}

// TocDue lists what is to be made, see store.Toc.
func (s *Store) TocDue(ctx context.Context, level store.TocLevel, upto string, limit int) (list []store.TocRef, err error) {
	err = s.do(ctx, "TocDue", func(time.Time) error {
		for ref, n := range s.toc.nodes {
			if n.Stale && ref.Level == level && ref.Period <= upto {
				list = append(list, ref)
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b store.TocRef) int {
		return cmp.Or(strings.Compare(a.Period, b.Period), strings.Compare(a.Owner, b.Owner))
	})
	return list[:min(len(list), max(limit, 0))], err
}

// BeginTocNode notes that a week or a month is being made, see store.Toc.
func (s *Store) BeginTocNode(ctx context.Context, ref store.TocRef, claim string) (ok bool, err error) {
	err = s.do(ctx, "BeginTocNode", func(now time.Time) error {
		if n := s.toc.nodes[ref]; n != nil && n.Stale && (n.claim == "" || now.Sub(n.claimedAt) >= store.TocClaimTime) {
			n.claim, n.claimedAt, ok = claim, now, true
		}
		return nil
	})
	return ok, err
}

// EndTocNode stores the text of a week or a month, see store.Toc.
func (s *Store) EndTocNode(ctx context.Context, ref store.TocRef, claim, text string) (ok bool, err error) {
	err = s.do(ctx, "EndTocNode", func(now time.Time) error {
		n := s.toc.nodes[ref]
		if n == nil || n.claim != claim || claim == "" {
			return nil
		}
		ok = true
		if month := s.toc.nodes[store.TocRef{Owner: ref.Owner, Level: store.TocMonth, Period: n.month}]; ref.Level == store.TocWeek && month != nil {
			month.Stale, month.claim = true, ""
		}
		if text == "" {
			delete(s.toc.nodes, ref)
			return nil
		}
		n.Text, n.Stale, n.claim, n.MadeAt = text, false, "", now
		n.Made++
		return nil
	})
	return ok, err
}

// Toc reads summaries, see store.Toc.
func (s *Store) Toc(ctx context.Context, q store.TocQuery) (out []store.TocNode, err error) {
	err = s.do(ctx, "Toc", func(time.Time) error {
		var list []store.TocNode
		add := func(n *tocText) {
			if n.Level == q.Level && n.Text != "" && (q.Visible == "" || n.Owner == q.Visible) && (q.Session.IsZero() || n.Session == q.Session) &&
				n.Period >= q.From && (q.To == "" || n.Period <= q.To) {
				list = append(list, n.TocNode)
			}
		}
		for _, p := range s.toc.parts {
			add(p)
		}
		for _, n := range s.toc.nodes {
			add(n)
		}
		slices.SortFunc(list, func(a, b store.TocNode) int {
			return cmp.Or(strings.Compare(b.Period, a.Period), strings.Compare(a.Owner, b.Owner), strings.Compare(a.Session.String(), b.Session.String()))
		})
		list = list[min(len(list), max(q.Offset, 0)):]
		out = within(list[:min(len(list), q.Most())], store.NewBudget(0), func(n store.TocNode) int { return len(n.Text) })
		return nil
	})
	return out, err
}
