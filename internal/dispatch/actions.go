package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
)

// actions implements [command.Actions].
type actions struct{ d *Dispatcher }

var _ command.Actions = actions{}

func (a actions) stop(ctx context.Context, c command.Call, scope store.StopScope) (command.StopReport, error) {
	p := store.StopParams{Session: c.Session, Scope: scope, By: c.Principal}
	if c.OwnOnly {
		m, err := a.d.stops.stopOwn(ctx, p, c.Sender.ID)
		return command.StopReport{Running: len(m.running), Waiting: len(m.waiting)}, err
	}
	m, err := a.d.stops.stop(ctx, p)
	return command.StopReport{Running: len(m.running), Waiting: len(m.waiting)}, err
}

// StopOne implements /stop.
func (a actions) StopOne(ctx context.Context, c command.Call) (command.StopReport, error) {
	return a.stop(ctx, c, store.StopOne)
}

// StopAll implements /stopall.
func (a actions) StopAll(ctx context.Context, c command.Call) (command.StopReport, error) {
	return a.stop(ctx, c, store.StopAll)
}

// NewSession implements /new.
func (a actions) NewSession(ctx context.Context, c command.Call) error {
	_, err := a.d.Reset(ctx, c.Session, callerOf(c), onceOf(c))
	if chat.CodeOf(err) == chat.CodeForbidden {
		return chat.Errorf(chat.CodeForbidden, "this conversation is not yours; to reset it needs the scope %s", chat.ScopeAdmin)
	}
	return err
}

// Queue implements /queue.
func (a actions) Queue(ctx context.Context, c command.Call) (command.QueueReport, error) {
	s := a.d.queue.settings(chat.Message{Session: c.Session, Channel: c.Channel}, "")
	r := command.QueueReport{Mode: s.mode(), Cap: s.Cap, Lane: "main"}
	st, err := a.d.store.Session(ctx, c.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if st.Mode != "" {
		r.Mode = st.Mode
	}
	r.Running, r.Waiting = len(st.ActiveRuns), st.Waiting
	return r, nil
}

// SetMode implements /queue MODE.
func (a actions) SetMode(ctx context.Context, c command.Call, mode chat.QueueMode) error {
	return a.d.store.SetSession(ctx, c.Session, c.Principal, store.SessionSettings{Mode: &mode})
}

// ClearQueue implements /queue clear.
func (a actions) ClearQueue(ctx context.Context, c command.Call) (int, error) {
	cleared := 0
	for after := int64(0); ; {
		waiting, _, err := a.d.store.PendingInputs(ctx, c.Session, after, 1000)
		if err != nil || len(waiting) == 0 {
			return cleared, err
		}
		after = waiting[len(waiting)-1].Seq
		for _, w := range waiting {
			a.d.sched.Drop(c.Session.String(), w.Seq)
		}
		cleared += a.d.queue.endWaiting(ctx, waiting, chat.OutcomeStopped, "cleared")
	}
}

// SetModel implements /model NAME.
func (a actions) SetModel(ctx context.Context, c command.Call, model string) error {
	return a.note(ctx, c, noteModel, model)
}

// Dirs implements /dir.
func (a actions) Dirs(ctx context.Context, c command.Call) (all []string, chosen string, err error) {
	all = a.d.agents[c.Session.Agent].Dirs
	if len(all) == 0 {
		return nil, "", nil
	}
	s, err := a.d.store.Session(ctx, c.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return all, all[0], nil
	}
	if chosen = s.Notes[noteDir]; !slices.Contains(all, chosen) {
		chosen = all[0]
	}
	return all, chosen, err
}

// SetDir implements /dir NUMBER.
func (a actions) SetDir(ctx context.Context, c command.Call, dir string) error {
	return a.note(ctx, c, noteDir, dir)
}

func (a actions) note(ctx context.Context, c command.Call, name, value string) error {
	return a.d.store.SetSession(ctx, c.Session, c.Principal, store.SessionSettings{Notes: map[string]string{name: value}})
}

// AnswerQuestion implements /allow, /deny and /answer.
func (a actions) AnswerQuestion(ctx context.Context, c command.Call, answer command.QuestionAnswer) (string, error) {
	return a.d.questions.answer(ctx, c.Principal, answer)
}

// Approvals implements /approvals.
func (a actions) Approvals(ctx context.Context, c command.Call) ([]chat.Approval, error) {
	list, err := a.d.store.Approvals(ctx, c.Principal, c.Session)
	for i := range list {
		list[i].Act = shownAct(list[i].Act)
	}
	return list, err
}

// RevokeApprovals implements /approvals revoke.
func (a actions) RevokeApprovals(ctx context.Context, c command.Call, id string) (int, error) {
	return a.d.store.Revoke(ctx, c.Principal, c.Session, id)
}

// Agents implements /agent.
func (a actions) Agents() []agent.Info { return a.d.Agents() }

// Overview implements /status.
func (a actions) Overview(ctx context.Context, c command.Call) (command.Overview, error) {
	st := a.d.Status(ctx)
	ag, ours := a.d.agents[c.Session.Agent]
	o := command.Overview{
		Version: st.Version, Store: st.Store, Agent: ag.Info.ID + " (" + ag.Info.Runner + ")", Model: ag.Info.Model,
		Uptime: time.Since(st.StartedAt).Round(time.Second).String(), Lanes: st.Lanes.Lanes, ContextWindow: ag.ContextWindow,
	}
	if !ours {
		o.Agent = c.Session.Agent + " (of another gateway)"
	}
	if c.Own {
		o.Lanes = nil
	}
	if st.StoreError != "" {
		o.Problems = append(o.Problems, "database: "+st.StoreError)
		return o, nil
	}
	var err error
	if o.Queue, err = a.Queue(ctx, c); err != nil {
		return o, err
	}
	s, err := a.d.store.Session(ctx, c.Session, "")
	if err == nil && s.Notes[noteModel] != "" {
		o.Model = s.Notes[noteModel]
	}
	tr, err := a.d.store.Transcript(ctx, store.TranscriptQuery{Session: c.Session, Limit: 1, MaxChars: 1})
	if err != nil {
		return o, err
	}
	o.Messages = tr.Total
	o.Tokens, _ = a.d.turns.estimate(ctx, c.Session.String())
	by := callerOf(c)
	by.Own = c.Own || by.InChat()
	used, err := a.d.Usage(ctx, by)
	if err != nil {
		return o, err
	}
	o.Usage = used.Lines()
	return o, nil
}
