package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Questions are listed and answered by an administrator and by a principal that is asked itself.
func TestAQuestionIsForThePersonWhomTheAgentAsks(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	ask := func(id, principal string) agent.OpenQuestion {
		return agent.OpenQuestion{
			ID: id, Agent: "main", Principal: principal, Session: chat.MainKey("main"), RunID: "gateway:r1", AskedAt: time.UnixMilli(1000), ExpiresAt: time.UnixMilli(2000),
			Question: agent.Question{Text: "delete it; with all", Act: "delete it", Options: []agent.Option{{Label: "Allow always", Allow: true, Always: true}, {Label: "Deny"}}},
		}
	}
	whole := ask("q3", "anna")
	whole.Text, whole.RunID = whole.Act, ""
	b.fakeBackend.set(func() { b.fakeBackend.questions = []agent.OpenQuestion{ask("q1", "gateway"), ask("q2", "anna"), whole} })
	admin, anna := b.login(adminToken), b.login(annaToken)
	listed := func(s *socket, p params) (ids []string, rows []any) {
		rows = s.must("questions.list", p)["questions"].([]any)
		for _, row := range rows {
			id := row.(params)["id"].(string)
			if row.(params)["mine"] == true {
				id += "!"
			}
			ids = append(ids, id)
		}
		return ids, rows
	}
	all, rows := listed(admin, params{})
	if got := strings.Join(all, " "); got != "q1! q2 q3" {
		t.Errorf("the administrator sees %q", got)
	}
	want := params{
		"id": "q1", "sessionKey": "agent:main:main", "agentId": "main", "runId": "r1", "principal": "gateway", "mine": true, "text": "delete it; with all", "act": "delete it",
		"options": []any{params{"label": "Allow always", "allow": true, "always": true}, params{"label": "Deny", "allow": false}}, "askedAtMs": 1000.0, "expiresAtMs": 2000.0,
	}
	if diff := cmp.Diff(want, rows[0]); diff != "" {
		t.Errorf("a question (-want +got):\n%s", diff)
	}
	if row := rows[2].(params); row["act"] != nil || row["runId"] != nil {
		t.Errorf("a question without details, whose turn has ended: %v", row)
	}
	if ids, _ := listed(anna, params{}); strings.Join(ids, " ") != "q2! q3!" {
		t.Errorf("anna sees %q", ids)
	}
	if ids, _ := listed(admin, params{"limit": 1}); len(ids) != 1 {
		t.Errorf("one question: %q", ids)
	}
	if got := anna.must("questions.answer", params{"id": "q2", "option": 2}); got["ok"] != true || got["text"] != "The answer is: Deny." {
		t.Errorf("the answer: %v", got)
	}
	for _, s := range []*socket{anna, admin} { // the administrator may read q2, but not answer it
		id := map[*socket]string{anna: "q1", admin: "q2"}[s]
		if f := s.call("questions.answer", params{"id": id, "option": 1}); f.OK || f.Error.Details["code"] != "NOT_FOUND" || f.Error.Message != "there is no open question like this" {
			t.Errorf("an answer to the question of another: %+v", f)
		}
	}
}

// One change is published to four connections.
func TestChangesOfQuestionsReachThePersonAndAdministrators(t *testing.T) {
	t.Parallel()
	b := start(t, withHooks)
	connections := map[string]*socket{
		"the person": b.login(annaToken, "laneway-ext"), "an administrator": b.login(adminToken, "laneway-ext"), "another principal": b.login(ottoToken, "laneway-ext"),
		"a client in the standard view": b.login(adminToken),
	}
	b.fakeBackend.publish(chat.Event{Kind: chat.EventQuestions, Session: chat.MainKey("main"), Principal: "anna", Reason: "asked"})
	for who, s := range connections {
		got := 0
		s.request("last", "agents.list", nil)
		for f := s.read(); f.ID != "last"; f = s.read() {
			if f.Event == "questions.changed" {
				got++
			}
		}
		if want := map[string]int{"the person": 1, "an administrator": 1}[who]; got != want {
			t.Errorf("%s got %d events, want %d", who, got, want)
		}
	}
}
