package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
)

// jobsShown is how many jobs a chat lists; it exceeds the limit of a chat user.
const jobsShown = 200

// chatCaller returns the caller of a command about jobs: it sees only the person's own jobs, even when their scope allows more.
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
	now, zone, err = a.d.svc.Clock(ctx)
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

// AddJob implements /remind and /cron add.
func (a actions) AddJob(ctx context.Context, c command.Call, n command.NewJob) (cron.Put, error) {
	by := chatCaller(c)
	m, err := chatJob(c, n)
	if err != nil {
		return cron.Put{}, err
	}
	return a.d.svc.Editor.AddInChat(ctx, m, by, onceOf(c))
}

// chatJob returns the members of a job that is made in a chat. The key is derived from the request and its chat, so repeating a request in a chat
// makes no second job, and the same words in two chats make two jobs. A changed job keeps its key.
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

// Jobs implements /jobs: the person's jobs in the order of their creation; if others can read the reply, only those that reply there.
func (a actions) Jobs(ctx context.Context, c command.Call) ([]cron.Job, error) {
	by := chatCaller(c)
	page, err := a.d.CronList(ctx, cron.JobFilter{SortBy: "id", Limit: jobsShown}, by)
	if err != nil || !c.Audience.Shared() {
		return page.Jobs, err
	}
	return slices.DeleteFunc(page.Jobs, func(j cron.Job) bool { return !j.In(c.Audience.Conversation) }), nil
}

// RemoveJob implements /cron rm.
func (a actions) RemoveJob(ctx context.Context, c command.Call, id string) error {
	by := chatCaller(c)
	return a.d.CronRemove(ctx, id, false, by)
}

// PauseJob implements /cron pause.
func (a actions) PauseJob(ctx context.Context, c command.Call, id, note string) error {
	by := chatCaller(c)
	_, err := a.d.CronPause(ctx, id, chat.Cut(note, 500), time.Time{}, by)
	return err
}

// ResumeJob implements /cron resume.
func (a actions) ResumeJob(ctx context.Context, c command.Call, id string) (cron.Job, error) {
	by := chatCaller(c)
	return a.d.CronResume(ctx, id, by)
}

// RunJob implements /cron run.
func (a actions) RunJob(ctx context.Context, c command.Call, id string) (reason string, err error) {
	by := chatCaller(c)
	_, not, err := a.d.CronRun(ctx, id, cron.RunForce, by, onceOf(c))
	return not, err
}

// RemovedJob returns, for /cron why, the id of a removed job. It searches the name in the last 200 matching rows of the ledger and returns "" if it is not there.
func (a actions) RemovedJob(ctx context.Context, c command.Call, name string) (string, error) {
	if c.Audience.Shared() {
		return "", nil
	}
	page, err := a.d.CronRuns(ctx, cron.RunFilter{Query: name, IncludeActive: true, Limit: jobsShown}, chatCaller(c))
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
	found, err := a.d.svc.Editor.Explain(ctx, cron.ExplainParams{ID: id, At: when}, chatCaller(c))
	if err != nil {
		return cron.Explanation{}, err
	}
	return found.Slots[0], nil
}
