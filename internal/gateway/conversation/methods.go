// Package conversation has the methods of the protocol by which a client takes part in
// conversations: messages and runs (chat.send, chat.abort, agent, wake), their history
// (chat.history), and the sessions that they belong to (sessions.*).
//
// # Ideas
//
// A session that a caller may not use does not exist for it. A call that would write into one is
// refused ([MayUse]). A call that only reads receives a view in which the session is empty, so that
// no answer distinguishes the two cases.
//
// The answer precedes the events of its run. Before a message is passed to the [Backend], the
// connection follows the run with the gate closed; the gate opens when the answer is queued. So the
// answer is first even when the run ends before the call returns.
//
// A list is limited in bytes, not only in rows. Messages are encoded once, while their bytes are
// counted.
//
// # What it does not do
//
// It makes no decision about messages: order, queues, commands and idempotency belong to the
// backend. It keeps no state and starts no goroutine.
package conversation

import (
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
	"laneway/internal/wire"
)

// Backend has the sessions and runs the messages. Every method returns *chat.Error values for
// errors that a caller can act on. Except for [Backend.Wait], no method waits for a lane, a slot or
// an answer.
type Backend interface {
	// ReceiveFrom makes a message durable and passes it to its lane, or executes it when it is a
	// chat command that by may use (otherwise the reply is a refusal). It returns
	// chat.ErrSessionNotFound when by is restricted to its own sessions and the session belongs to
	// another principal. The gateway has checked that before, but only the acceptance itself is
	// free of races.
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	// Defer makes a system text durable that is put before the next turn of its session, whatever
	// starts that. It starts nothing. A second call with the same Dedupe adds no text.
	Defer(ctx context.Context, m chat.Message, by chat.Caller) error
	// Stop stops what p names and returns the ids of the affected runs and messages. It works even
	// when every lane is full.
	Stop(ctx context.Context, p store.StopParams) ([]string, error)
	// Wait returns when the message has ended, or when ctx is done (then with its cause). It also
	// finds messages of other processes.
	Wait(ctx context.Context, messageID string) (chat.RunEnd, error)
	// InFlight returns the oldest running turn of a session on this process.
	InFlight(key chat.SessionKey) (chat.InFlight, bool)

	// Session reads one session, if the principal visible may see it ("" = every principal);
	// chat.ErrSessionNotFound.
	Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error)
	Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error)
	Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error)
	Search(ctx context.Context, q store.SearchQuery) (store.SearchResult, error)
	Toc(ctx context.Context, q store.TocQuery) ([]store.TocNode, error)
	PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error)
	// FilesOfRuns lists the files that came with the messages of runs, by run and in the order of
	// the messages.
	FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error)
	// Tasks lists sub-turns of turns, newest first.
	Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error)
	// OpenQuestions lists the questions that a person (owner "" = any person) can answer, the
	// oldest first, at most limit of them.
	OpenQuestions(ctx context.Context, owner string, limit int) ([]agent.OpenQuestion, error)
	// AnswerQuestion chooses an option, which counts from 1, and returns the effect of the answer;
	// chat.CodeNotFound: the question is not open, or is for another person.
	AnswerQuestion(ctx context.Context, by, id string, option int) (string, error)
	// Reset stops all work of the session and begins an empty transcript; it returns its id. A call
	// with an o that was answered before stops nothing and returns the first answer;
	// chat.ErrKeyReused when that had other params. o may be nil.
	Reset(ctx context.Context, key chat.SessionKey, by chat.Caller, o *chat.IdempotencyKey) (string, error)
	// Delete stops all work of the session and removes it; p.IdempotencyKey as with Reset.
	Delete(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error)

	// DefaultAgent returns the agent of a session key that names no agent.
	DefaultAgent() string
}

// handlers implement the methods of conversations.
type handlers struct {
	backend Backend
	files   Files
}

// Methods returns the rows of the table for messages, runs and sessions. files may be nil.
func Methods(backend Backend, files Files) []*rpc.Method {
	h := handlers{backend, files}
	return slices.Concat(h.messages(), h.sessions(), h.tasks(), h.toc(), h.questions())
}

// usable reports whether a principal may use a session: one that sees only its own data needs a
// right to it, see [chat.SessionKey.UsableBy].
func usable(ctx context.Context, backend Backend, cred auth.Credential, key chat.SessionKey) (bool, error) {
	if !cred.Own() {
		return true, nil
	}
	st, err := backend.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	if err != nil && !absent {
		return false, err
	}
	return key.UsableBy(cred.Name, st.Principal, !absent), nil
}

// MayUse returns an error for a session that the principal may not use.
func MayUse(ctx context.Context, backend Backend, cred auth.Credential, key chat.SessionKey) error {
	ok, err := usable(ctx, backend, cred, key)
	if err == nil && !ok {
		err = chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
	}
	return err
}

// mayUse returns an error for a session that the caller may not use, for a call that would write
// into it.
func (h handlers) mayUse(ctx context.Context, c *rpc.Call, key chat.SessionKey) error {
	return MayUse(ctx, h.backend, c.Cred, key)
}

// view is a session as one caller sees it. A session that the caller may not use is empty, like one
// that does not exist.
type view struct {
	Backend

	key    chat.SessionKey
	hidden bool
}

// lookAt prepares a call that only reads a session, or ends work in it.
func (h handlers) lookAt(ctx context.Context, c *rpc.Call, key chat.SessionKey) (view, error) {
	ok, err := usable(ctx, h.backend, c.Cred, key)
	if !ok {
		return view{nowhere{h.backend}, key, true}, err
	}
	return view{h.backend, key, false}, err
}

// nowhere is a backend without sessions.
type nowhere struct{ Backend }

func (nowhere) InFlight(chat.SessionKey) (chat.InFlight, bool) { return chat.InFlight{}, false }

func (nowhere) Session(context.Context, chat.SessionKey, string) (chat.SessionStatus, error) {
	return chat.SessionStatus{}, chat.ErrSessionNotFound
}

func (nowhere) Transcript(context.Context, store.TranscriptQuery) (store.Transcript, error) {
	return store.Transcript{}, nil
}

func (nowhere) PendingInputs(context.Context, chat.SessionKey, int64, int) ([]store.Waiting, int, error) {
	return nil, 0, nil
}

// questionsLimit is the default number of listed questions.
const questionsLimit = 100

func (h handlers) questions() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("questions.list", chat.ScopeRead, h.questionsList, rpc.Lists),
		rpc.Define("questions.answer", chat.ScopeWrite, h.questionsAnswer, rpc.Limited(auth.LimitChats)),
	}
}

// questionsList lists the questions to the caller, or to all people for administrators.
func (h handlers) questionsList(ctx context.Context, c *rpc.Call, p wire.QuestionsListParams) (wire.QuestionsListResult, error) {
	out := wire.QuestionsListResult{TS: time.Now().UnixMilli(), Questions: []wire.Question{}}
	owner := c.Principal()
	if c.Cred.Administers(c.Scopes) {
		owner = ""
	}
	list, err := h.backend.OpenQuestions(ctx, owner, int(orElse(p.Limit, questionsLimit)))
	for _, q := range list {
		row := wire.Question{
			ID: q.ID, SessionKey: q.Session.String(), AgentID: q.Agent, RunID: chat.ShownRunID(q.RunID), Principal: q.Principal, Mine: q.Principal == c.Principal(),
			Text: q.Text, Act: q.Act, Options: []wire.QuestionOption{}, AskedAtMs: rpc.Millis(q.AskedAt), ExpiresAtMs: rpc.Millis(q.ExpiresAt),
		}
		if row.Act == row.Text {
			row.Act = ""
		}
		for _, o := range q.Options {
			row.Options = append(row.Options, wire.QuestionOption{Label: o.Label, Allow: o.Allow, Always: o.Always})
		}
		out.Questions = append(out.Questions, row)
	}
	return out, err
}

func (h handlers) questionsAnswer(ctx context.Context, c *rpc.Call, p wire.QuestionsAnswerParams) (wire.QuestionsAnswerResult, error) {
	text, err := h.backend.AnswerQuestion(ctx, c.Principal(), p.ID, int(p.Option))
	return wire.QuestionsAnswerResult{OK: true, Text: text}, err
}

func (h handlers) tasks() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("tasks.list", chat.ScopeRead, h.tasksList, rpc.Lists),
		rpc.Define("tasks.get", chat.ScopeRead, h.tasksGet),
		rpc.Define("tasks.stop", chat.ScopeWrite, h.tasksStop, rpc.Control),
	}
}

// tasksList lists the tasks of the caller, or of all principals for a caller that sees everything.
func (h handlers) tasksList(ctx context.Context, c *rpc.Call, p wire.TasksListParams) (wire.TasksListResult, error) {
	out := wire.TasksListResult{TS: time.Now().UnixMilli(), Tasks: []wire.Task{}}
	f := store.TaskFilter{Visible: c.Visible(), Open: p.Open, Limit: int(orElse(p.Limit, store.DefaultTasks))}
	if p.SessionKey != "" {
		key, err := chat.ParseSessionKey(p.SessionKey, h.backend.DefaultAgent())
		if err != nil {
			return out, c.BadParam("/sessionKey", err.Error())
		}
		f.RootSession = key
	}
	list, err := h.backend.Tasks(ctx, f)
	for _, t := range list {
		out.Tasks = append(out.Tasks, taskRow(t))
	}
	return out, err
}

func (h handlers) tasksGet(ctx context.Context, c *rpc.Call, p wire.TaskParams) (wire.TasksGetResult, error) {
	list, err := h.backend.Tasks(ctx, store.TaskFilter{ID: p.ID, Visible: c.Visible(), Limit: 1})
	if err != nil || len(list) == 0 {
		return wire.TasksGetResult{}, err
	}
	row := taskRow(list[0])
	return wire.TasksGetResult{Task: &row}, nil
}

// tasksStop stops a task and its sub-tasks.
func (h handlers) tasksStop(ctx context.Context, c *rpc.Call, p wire.TaskParams) (wire.TasksStopResult, error) {
	out := wire.TasksStopResult{OK: true, RunIDs: []string{}}
	list, err := h.backend.Tasks(ctx, store.TaskFilter{ID: p.ID, Visible: c.Visible(), Limit: 1})
	if err != nil || len(list) == 0 {
		return out, err
	}
	ids, err := h.backend.Stop(ctx, store.StopParams{Session: list[0].Session, Scope: store.StopRun, MessageID: list[0].ID, By: c.Principal(), Reason: "stop"})
	out.Stopped, out.RunIDs = len(ids) > 0, append(out.RunIDs, shownRuns(ids)...)
	return out, err
}

func taskRow(t store.Task) wire.Task {
	return wire.Task{
		ID: t.ID, SessionKey: t.Session.String(), AgentID: t.Agent, Lane: t.Lane, ParentRunID: chat.ShownRunID(t.Parent), RootRunID: chat.ShownRunID(t.Root),
		Text: t.Text, State: t.State, Outcome: string(t.Outcome), Reason: t.Reason, Error: t.Error, Background: t.Announce,
		CreatedAt: rpc.Millis(t.AcceptedAt), StartedAt: rpc.Millis(t.StartedAt), EndedAt: rpc.Millis(t.EndedAt),
	}
}
