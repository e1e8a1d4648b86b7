package conversation

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
)

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
