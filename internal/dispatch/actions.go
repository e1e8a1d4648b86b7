package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
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
	s := a.d.queue.configured(c.Session, c.Channel, &chat.Content{})
	r := command.QueueReport{Mode: chat.QueueMode(s.Mode), Cap: s.Cap, Lane: "main"}
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
			a.d.queue.refresh(ctx, c.Session)
			return cleared, err
		}
		after = waiting[len(waiting)-1].Seq
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
	used, err := a.d.Meter.Report(ctx, by.Principal, by.Own)
	if err != nil {
		return o, err
	}
	o.Usage = used.Lines()
	return o, nil
}

// jobsShown is how many jobs a chat lists; it exceeds the limit of a chat user.
const jobsShown = 200

// chatCaller returns the caller of a command about jobs: it sees only the person's own jobs, even
// when their scope allows more.
func chatCaller(c command.Call) chat.Caller {
	by := callerOf(c)
	by.Own = true
	return by
}

// Clock returns the store's time and the person's zone, or the gateway's.
func (a actions) Clock(ctx context.Context, c command.Call) (now time.Time, zone string, err error) {
	chosen, err := a.Zone(ctx, c)
	if err != nil {
		return now, "", err
	}
	now, zone, err = a.d.Jobs.Clock(ctx)
	return now, cmp.Or(chosen, zone), err
}

// Zone implements /timezone without an argument.
func (a actions) Zone(ctx context.Context, c command.Call) (string, error) {
	return a.d.store.ZoneOf(ctx, c.Principal)
}

// SetZone implements /timezone.
func (a actions) SetZone(ctx context.Context, c command.Call, zone string) error {
	return a.d.store.SetZone(ctx, c.Principal, zone)
}

// quietChat is the chat of a network that a conversation is in. The quiet hours of a group are set
// there, where the channel has checked that its administrators do, or by an operator.
func quietChat(c command.Call) (at chat.Target, err error) {
	if at = c.Target; at.IsZero() {
		at = c.Session.Target()
	}
	switch {
	case at.ChatID == "":
		return at, chat.Errorf(chat.CodeInvalid, "quiet hours belong to a chat of a network such as Telegram: write /quiet there")
	case c.Target.IsZero() && c.Session.Kind() == chat.KindGroup && c.Scope != chat.ScopeAdmin && c.Args != "":
		return at, chat.Errorf(chat.CodeForbidden, "only administrators of this group may choose its quiet hours: write /quiet there")
	}
	return at, nil
}

// QuietHours implements /quiet.
func (a actions) QuietHours(ctx context.Context, c command.Call) (q schedule.Quiet, ok bool, err error) {
	at, err := quietChat(c)
	if err != nil {
		return q, false, err
	}
	return a.d.store.QuietHours(ctx, at)
}

// SetQuietHours implements /quiet HOURS. Those of a group do not follow the zone of a person.
func (a actions) SetQuietHours(ctx context.Context, c command.Call, q *schedule.Quiet) error {
	at, err := quietChat(c)
	if err != nil {
		return err
	}
	of := c.Principal
	if c.Audience.Shared() || c.Target.IsZero() {
		of = ""
	}
	if err := a.d.store.SetQuietHours(ctx, at, q, of); err != nil {
		return err
	}
	a.d.sender.Wake()
	return nil
}

// AddJob implements /remind and /cron add.
func (a actions) AddJob(ctx context.Context, c command.Call, n command.NewJob) (cron.Put, error) {
	by := chatCaller(c)
	m, err := chatJob(c, n)
	if err != nil {
		return cron.Put{}, err
	}
	return a.d.Jobs.AddInChat(ctx, m, by, onceOf(c))
}

// chatJob returns the members of a job that is made in a chat. The key is derived from the request
// and its chat, so repeating a request in a chat makes no second job, and the same words in two
// chats make two jobs. A changed job keeps its key.
func chatJob(c command.Call, n command.NewJob) (cron.Members, error) {
	deliver := map[string]any{"mode": cron.DeliverAnnounce, "channel": channel.Web, "to": c.Session.String()}
	if to := c.Target; !to.IsZero() {
		deliver["channel"], deliver["to"] = to.Channel, to.ChatID
		if to.Thread != "" {
			deliver["threadId"] = to.Thread
		}
	}
	payload, wake := map[string]any{"kind": cron.PayloadAgentTurn, "message": n.Text}, cron.WakeNow
	if n.Reminder {
		payload, wake = map[string]any{"kind": cron.PayloadSystemEvent, "text": n.Text}, cron.WakeLater
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{c.Session.String(), c.Target.Channel, c.Target.ChatID, c.Target.Thread, wake, n.Text, n.Schedule.Signature()}, "\x00")))
	members := map[string]any{
		"name": command.JobName(n.Text), "key": cmp.Or(n.Key, "chat:"+hex.EncodeToString(sum[:12])), "agentId": c.Session.Agent, "sessionTarget": cron.Isolated,
		"wakeMode": wake, "payload": payload, "delivery": deliver, "schedule": command.WireSchedule(n.Schedule),
	}
	m := cron.Members{}
	for name, value := range members {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, chat.Errorf(chat.CodeInvalid, "the job cannot be written down: %s", err)
		}
		m[name] = raw
	}
	return m, nil
}

// Jobs implements /jobs: the person's jobs in the order of their creation; if others can read the
// reply, only those that reply there.
func (a actions) Jobs(ctx context.Context, c command.Call) ([]cron.Job, error) {
	by := chatCaller(c)
	page, err := a.d.Jobs.Jobs(ctx, cron.JobFilter{SortBy: "id", Limit: jobsShown}, by)
	if err != nil || !c.Audience.Shared() {
		return page.Jobs, err
	}
	return slices.DeleteFunc(page.Jobs, func(j cron.Job) bool { return !j.In(c.Audience.Conversation) }), nil
}

// RemoveJob implements /cron rm.
func (a actions) RemoveJob(ctx context.Context, c command.Call, id string) error {
	by := chatCaller(c)
	return a.d.Jobs.Remove(ctx, id, false, by)
}

// PauseJob implements /cron pause.
func (a actions) PauseJob(ctx context.Context, c command.Call, id, note string) error {
	by := chatCaller(c)
	_, err := a.d.Jobs.Pause(ctx, id, chat.Cut(note, 500), time.Time{}, by)
	return err
}

// ResumeJob implements /cron resume.
func (a actions) ResumeJob(ctx context.Context, c command.Call, id string) (cron.Job, error) {
	by := chatCaller(c)
	return a.d.Jobs.Resume(ctx, id, by)
}

// RunJob implements /cron run.
func (a actions) RunJob(ctx context.Context, c command.Call, id string) (reason string, err error) {
	by := chatCaller(c)
	_, not, err := a.d.Jobs.Start(ctx, id, cron.RunForce, by, onceOf(c))
	return not, err
}

// RemovedJob returns, for /cron why, the id of a removed job. It searches the name in the last 200
// matching rows of the ledger and returns "" if it is not there.
func (a actions) RemovedJob(ctx context.Context, c command.Call, name string) (string, error) {
	if c.Audience.Shared() {
		return "", nil
	}
	page, err := a.d.Jobs.Ledger(ctx, cron.RunFilter{Query: name, IncludeActive: true, Limit: jobsShown}, chatCaller(c))
	if err != nil {
		return "", err
	}
	var ids []string
	for i := range page.Runs {
		r := &page.Runs[i]
		if (strings.EqualFold(r.JobName, name) || r.JobID == name) && !slices.Contains(ids, r.JobID) {
			ids = append(ids, r.JobID)
		}
	}
	switch len(ids) {
	case 0:
		return "", nil
	case 1:
		return ids[0], nil
	}
	return "", chat.Errorf(chat.CodeInvalid, "%d removed jobs had this name; give the id: %s", len(ids), strings.Join(ids, ", "))
}

// ExplainJob implements /cron why.
func (a actions) ExplainJob(ctx context.Context, c command.Call, id, when string) (cron.Explanation, error) {
	found, err := a.d.Jobs.Explain(ctx, cron.ExplainParams{ID: id, At: when}, chatCaller(c))
	if err != nil {
		return cron.Explanation{}, err
	}
	return found.Slots[0], nil
}

// tasksOf returns the open tasks of the conversation of a command, oldest first. For a caller who
// may stop only their own work, it returns only their tasks.
func (a actions) tasksOf(ctx context.Context, c command.Call) ([]store.Task, error) {
	f := store.TaskFilter{RootSession: c.Session, Open: true}
	if c.Own || c.OwnOnly {
		f.Visible = c.Principal
	}
	list, err := a.d.store.Tasks(ctx, f)
	slices.Reverse(list)
	return list, err
}

// Tasks implements /tasks.
func (a actions) Tasks(ctx context.Context, c command.Call) ([]command.Task, error) {
	list, err := a.tasksOf(ctx, c)
	tasks := make([]command.Task, 0, len(list))
	for _, t := range list {
		tasks = append(tasks, command.Task{ID: t.ID, Agent: t.Agent, State: t.State, Text: t.Text})
	}
	return tasks, err
}

// StopTask implements /tasks stop.
func (a actions) StopTask(ctx context.Context, c command.Call, id string) error {
	list, err := a.tasksOf(ctx, c)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(t store.Task) bool { return t.ID == id })
	if i < 0 {
		return chat.Errorf(chat.CodeNotFound, "this task has ended")
	}
	_, err = a.d.stops.stop(ctx, store.StopParams{Session: list[i].Session, Scope: store.StopRun, MessageID: id, By: c.Principal})
	return err
}

// ExplainTurn implements /why.
func (a actions) ExplainTurn(ctx context.Context, c command.Call, id string) (store.TurnExplanation, error) {
	list, waits, err := a.ownTurns(ctx, c, id)
	if err != nil {
		return store.TurnExplanation{}, err
	}
	for i := range list {
		t := &list[i]
		if t.State == store.StateDone && t.Outcome == chat.OutcomeAnswered && t.StartedAt.IsZero() { // a command
			continue
		}
		var wait *chat.Waiting
		if w, waits := waits[t.ID]; waits {
			wait = &w
		}
		return store.ExplainTurn(t, wait, time.Now()), nil
	}
	return store.TurnExplanation{}, chat.Errorf(chat.CodeNotFound, "there is no such message of yours among the newest here; write /why as a reply to your own message, or to its answer")
}

// ownTurns returns the turn of a message of the caller, or of the answer to it that the command
// answers, or without an id the newest turns of the caller in the conversation.
func (a actions) ownTurns(ctx context.Context, c command.Call, id string) ([]store.Turn, map[string]chat.Waiting, error) {
	f := store.TurnFilter{Message: id, Session: c.Session, Visible: c.Principal}
	list, waits, err := a.d.Turns(ctx, f)
	if err == nil && len(list) == 0 && id != "" && id == c.Answered {
		m, err := a.d.store.SentMessage(ctx, c.Target, id)
		if errors.Is(err, chat.ErrNotFound) || err == nil && m.RunID == "" {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		return a.d.Turns(ctx, store.TurnFilter{Message: m.RunID, Visible: c.Principal})
	}
	if err != nil || id != "" || len(list) > 0 {
		slices.Reverse(list)
		return list, waits, err
	}
	f.Which, f.Limit = store.TurnsEnded, store.RecentMessages
	list, waits, err = a.d.Turns(ctx, f)
	if err == nil && len(list) > 0 { // with what it has sent
		newest := slices.IndexFunc(list, func(t store.Turn) bool { return !t.StartedAt.IsZero() || t.Outcome != chat.OutcomeAnswered })
		if newest >= 0 {
			return a.d.Turns(ctx, store.TurnFilter{ID: list[newest].ID, Visible: c.Principal})
		}
	}
	return list, waits, err
}

// tocShown is how many summaries /toc shows.
const tocShown = 7

// Toc implements /toc. When others can read the reply, it lists only days of that session, not the
// person's other sessions.
func (a actions) Toc(ctx context.Context, c command.Call, level string) ([]command.TocLine, error) {
	q := store.TocQuery{Level: store.TocLevel(level), Visible: c.Principal, Limit: tocShown}
	if c.Audience.Shared() {
		if q.Level != store.TocDay {
			return nil, chat.Errorf(chat.CodeInvalid, "in a group there are only summaries of its days; write /toc")
		}
		q.Visible, q.Session = "", c.Session
	}
	list, err := a.d.store.Toc(ctx, q)
	if err != nil {
		return nil, err
	}
	lines := make([]command.TocLine, 0, len(list))
	for _, n := range list {
		line := command.TocLine{Period: n.Period, Text: n.Text}
		if !n.Session.IsZero() && n.Session != c.Session {
			line.Session = n.Session.String()
		}
		lines = append(lines, line)
	}
	return lines, nil
}
