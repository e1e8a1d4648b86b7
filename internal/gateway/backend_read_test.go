package gateway_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/store"
)

func (h *fakeBackend) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil || r.running == nil {
		return chat.InFlight{}, false
	}
	return chat.InFlight{RunID: r.running.m.ID, Text: r.running.text, Seq: r.running.evs}, true
}

func (h *fakeBackend) Session(_ context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil || visible != "" && r.status.Principal != visible {
		return chat.SessionStatus{}, chat.ErrSessionNotFound
	}
	return r.now(), nil
}

func (r *fakeSession) now() chat.SessionStatus {
	st := r.status
	st.QueueDepth, st.Status = len(r.queue), "done"
	if r.running != nil {
		st.ActiveRuns, st.Status = []string{r.running.m.ID}, "running"
	}
	return st
}

func (h *fakeBackend) Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lists := h.lists; lists != nil {
		h.listing++
		h.mu.Unlock()
		select {
		case <-lists:
		case <-ctx.Done():
		}
		h.mu.Lock()
		h.listing--
	}
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	var all []chat.SessionStatus
	for _, r := range h.sessions {
		if f.Visible == "" || f.Visible == r.status.Principal {
			all = append(all, r.now())
		}
	}
	slices.SortFunc(all, func(a, b chat.SessionStatus) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	from := min(f.Offset, len(all))
	return all[from:min(from+f.Limit, len(all))], len(all), nil
}

func (h *fakeBackend) Turns(_ context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, nil, chat.ErrStoreUnavailable
	}
	h.turnFilters = append(h.turnFilters, f)
	var list []store.Turn
	for _, t := range h.turnList {
		fits := f.Which == store.TurnsOpen || f.Which == "" || (f.Which == store.TurnsEnded) == (t.State == store.StateDone)
		if f.One() || f.Parent != "" {
			fits = f.ID == t.ID || f.Message == t.ID || f.Parent != "" && f.Parent == t.Parent
		}
		if fits && (f.Visible == "" || f.Visible == t.Principal) && (f.Outcome == "" || f.Outcome == t.Outcome) {
			list = append(list, t)
		}
	}
	return list[:min(len(list), f.Most())], h.waits, nil
}

func (h *fakeBackend) OpenQuestions(_ context.Context, owner string, limit int) ([]agent.OpenQuestion, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, chat.ErrStoreUnavailable
	}
	var list []agent.OpenQuestion
	for _, q := range h.questions {
		if owner == "" || owner == q.Principal {
			list = append(list, q)
		}
	}
	return list[:min(len(list), limit)], nil
}

func (h *fakeBackend) AnswerQuestion(_ context.Context, by, id string, option int) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.IndexFunc(h.questions, func(q agent.OpenQuestion) bool { return q.ID == id && q.Principal == by })
	if at < 0 {
		return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this")
	}
	return "The answer is: " + h.questions[at].Options[option-1].Label + ".", nil
}

func (h *fakeBackend) Tasks(_ context.Context, f store.TaskFilter) ([]store.Task, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, chat.ErrStoreUnavailable
	}
	var list []store.Task
	for _, t := range h.tasks {
		if (f.ID == "" || f.ID == t.ID) && (f.Visible == "" || f.Visible == t.Principal) && (!f.Open || t.State != store.StateDone) {
			list = append(list, t)
		}
	}
	return list[:min(len(list), f.Most())], nil
}

func (h *fakeBackend) Transcript(_ context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return store.Transcript{}, chat.ErrStoreUnavailable
	}
	r := h.sessions[q.Session.String()]
	if r == nil {
		return store.Transcript{}, nil
	}
	t := store.Transcript{SessionID: r.status.SessionID, Total: len(r.entries), LastSeq: int64(len(r.entries))}
	if q.After > 0 || q.FromStart {
		from := min(int(q.After), len(r.entries))
		t.Entries = slices.Clone(r.entries[from:min(from+q.Limit, len(r.entries))])
		return t, nil
	}
	to := max(0, len(r.entries)-q.Offset)
	t.Entries = slices.Clone(r.entries[max(0, to-q.Limit):to])
	return t, nil
}

// Toc returns a day of each session, and a week of each principal.
func (h *fakeBackend) Toc(_ context.Context, q store.TocQuery) ([]store.TocNode, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []store.TocNode
	for _, r := range h.sessions {
		n := store.TocNode{Owner: r.status.Principal, Level: q.Level, Period: "2026-W11", Text: "what was said", MadeAt: time.UnixMilli(1000), Made: 1}
		if q.Level == store.TocDay {
			n.Period, n.Session, n.From, n.To, n.Entries = "2026-03-14", r.status.Key, 1, 2, 2
		}
		if (q.Visible == "" || q.Visible == n.Owner) && (q.Session.IsZero() || q.Session == n.Session) && n.Period >= q.From && (q.To == "" || n.Period <= q.To) {
			list = append(list, n)
		}
	}
	return list[min(q.Offset, len(list)):min(len(list), q.Offset+q.Most())], nil
}

// Search searches the transcripts of this backend.
func (h *fakeBackend) Search(_ context.Context, q store.SearchQuery) (store.SearchResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var hits []store.Hit
	for _, r := range h.sessions {
		if q.Visible != "" && q.Visible != r.status.Principal || !q.Session.IsZero() && q.Session != r.status.Key {
			continue
		}
		for _, e := range r.entries {
			hit, ok := q.Hit(store.Hit{Session: r.status.Key, SessionID: r.status.SessionID, Principal: r.status.Principal, Entry: e})
			if ok && (q.Until.IsZero() || !e.At.After(q.Until)) {
				hits = append(hits, hit)
			}
		}
	}
	return q.Cut(hits), nil
}

func (h *fakeBackend) PendingInputs(_ context.Context, key chat.SessionKey, _ int64, limit int) ([]store.Waiting, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil {
		return nil, 0, nil
	}
	var out []store.Waiting
	for _, l := range r.queue[:min(limit, len(r.queue))] {
		out = append(out, store.Waiting{Session: key, MessageID: l.m.ID, Content: l.m.Content, AcceptedAt: l.at})
	}
	return out, len(r.queue), nil
}

func (h *fakeBackend) Reset(_ context.Context, key chat.SessionKey, by gateway.Caller, o *chat.IdempotencyKey) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return once(h, o, func() (string, error) {
		r := h.fakeSession(key, by.Principal)
		r.entries = nil
		r.status.SessionID += "x"
		return r.status.SessionID, nil
	})
}

// recordedAnswer is the answer to a call with an idempotency key.
type recordedAnswer struct {
	hash   string
	answer any
}

// once runs do for the first call with a key.
func once[T any](h *fakeBackend, o *chat.IdempotencyKey, do func() (T, error)) (T, error) {
	if o == nil {
		return do()
	}
	name := chat.IdempotencyKey{Owner: o.Owner, Method: o.Method, Key: o.Key}
	if before, ok := h.answers[name]; ok {
		if before.hash != o.Hash {
			var none T
			return none, chat.ErrKeyReused
		}
		return before.answer.(T), nil
	}
	out, err := do()
	if err == nil {
		h.answers[name] = recordedAnswer{o.Hash, out}
	}
	return out, err
}

func (h *fakeBackend) Delete(_ context.Context, p store.DeleteParams, _ gateway.Caller) (store.Deleted, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return once(h, p.IdempotencyKey, func() (store.Deleted, error) {
		r := h.sessions[p.Session.String()]
		switch {
		case r == nil:
			return store.Deleted{}, nil
		case p.ExpectID != "" && p.ExpectID != r.status.SessionID:
			return store.Deleted{}, chat.Errorf(chat.CodeConflict, "the session has another transcript now")
		}
		delete(h.sessions, p.Session.String())
		out := store.Deleted{Deleted: true}
		if p.KeepTranscript {
			out.Kept = r.status.SessionID
		}
		return out, nil
	})
}

func (h *fakeBackend) Audit(_ context.Context, a chat.Audit) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.audits = append(h.audits, a)
	return nil
}

func (h *fakeBackend) DefaultAgent() string { return "main" }

func (h *fakeBackend) Agents() []agent.Info {
	return []agent.Info{{ID: "main", Name: "Echo", Model: "echo-1", Runner: "echo"}}
}

func (h *fakeBackend) Commands() []chat.CommandInfo {
	return []chat.CommandInfo{
		{Name: "stop", Description: "Stop the oldest running turn.", Category: "session", Urgent: true},
		{Name: "cron", Aliases: []string{"jobs"}, Description: "Jobs.", Category: "cron", ArgsHint: "add …"},
	}
}

func (h *fakeBackend) Lanes() chat.LanesStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := chat.LanesStatus{At: time.Now(), NodeID: "gw-1", Tracked: len(h.sessions), Lanes: []chat.LaneStatus{{Name: "main", Capacity: 30}}}
	for _, r := range h.sessions {
		if r.running != nil {
			st.Running++
			st.Lanes[0].Active++
		}
		st.Waiting += len(r.queue)
	}
	return st
}

func (h *fakeBackend) Status(context.Context) chat.SystemStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := chat.SystemStatus{
		NodeID: "gw-1", Version: "0.1.0", Store: "sqlite", Channels: slices.Clone(h.channels),
		Stranded: h.stranded, Progress: h.progress(), Nodes: []chat.NodeStatus{{ID: "n1", Name: "gw-1", Version: "0.1.0", Lease: 13 * time.Second}},
	}
	if h.down {
		st.StoreError = "the database cannot be reached"
	}
	return st
}

func (h *fakeBackend) Channels() []chat.ChannelStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.channels)
}

func (h *fakeBackend) progress() chat.Progress {
	p := chat.Progress{StalledFor: h.stall, CronAge: -1, DispatcherAge: time.Second}
	if h.cronAge > 0 {
		p.CronAge = h.cronAge
	}
	return p
}

func (h *fakeBackend) Progress() chat.Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.progress()
}

func (h *fakeBackend) Ready(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return &gateway.NotReadyError{Check: gateway.CheckDatabase, Cause: chat.ErrStoreUnavailable}
	}
	return h.notReady
}
