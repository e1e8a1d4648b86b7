package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

func TestARepeatedResetSparesTheNewConversation(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		key, by := chat.MainKey("main"), chat.Caller{Principal: "tester", Scopes: []string{chat.ScopeWrite}}
		o := &chat.IdempotencyKey{Owner: "tester", Method: "sessions.reset", Key: "k", Hash: "h"}
		old := h.send("main", "sleep 1h")
		time.Sleep(time.Second)
		reset := func() string {
			t.Helper()
			id, err := h.d.Reset(t.Context(), key, by, o)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := reset()
		want(t, "the old turn", h.end(old).Outcome, chat.OutcomeStopped)
		next := h.send("main", "sleep 5s")
		time.Sleep(time.Second)
		want(t, "transcript of the repeated reset", reset(), first)
		want(t, "the turn of the new conversation", h.end(next).Outcome, chat.OutcomeAnswered)
		o.Hash = "other"
		if _, err := h.d.Reset(t.Context(), key, by, o); !errors.Is(err, chat.ErrKeyReused) {
			t.Errorf("other params: %v", err)
		}
	})
}

func TestARepeatedDeleteSparesTheNewSession(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		p := store.DeleteParams{Session: chat.MainKey("main"), IdempotencyKey: &chat.IdempotencyKey{Owner: "tester", Method: "sessions.delete", Key: "k", Hash: "h"}}
		remove := func() {
			t.Helper()
			out, err := h.d.Delete(t.Context(), p, chat.Caller{Principal: "tester"})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "deleted", out.Deleted, true)
		}
		h.end(h.send("main", "hello"))
		remove()
		next := h.send("main", "sleep 5s")
		time.Sleep(time.Second)
		remove()
		want(t, "the turn of the new session", h.end(next).Outcome, chat.OutcomeAnswered)
	})
}

// The access check before the acceptance and the acceptance itself are two steps. A caller that creates the session in between owns it.
func TestOfTwoWhoMakeASessionAtOnceOneOwnsIt(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		for round := range 50 {
			key := fmt.Sprintf("room%d", round)
			names := []string{"ann", "bob"}
			got := make(chan error, len(names))
			for _, name := range names {
				m := h.msg(key, "hello from "+name)
				go func() {
					_, err := h.d.ReceiveFrom(t.Context(), m, chat.Caller{Principal: name, Own: true, Scopes: []string{"operator.write"}})
					got <- err
				}()
			}
			refused := 0
			for range names {
				if err := <-got; err != nil {
					refused++
					if e, ok := errors.AsType[*chat.Error](err); !ok || e.Code != chat.CodeSessionNotFound || e.Details["key"] != "agent:main:"+key {
						t.Errorf("refused with %v", err)
					}
				}
			}
			want(t, "refused in "+key, refused, 1)
		}
	})
}

func TestCommandsReachNoSessionOfAnother(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("main", "sleep 5s")
		time.Sleep(time.Second)
		for _, text := range []string{"/stop", "/stopall", "/queue", "/new"} {
			_, err := h.d.ReceiveFrom(t.Context(), h.msg("main", text), chat.Caller{Principal: "bob", Own: true, Scopes: []string{"operator.admin"}})
			if !errors.Is(err, chat.ErrSessionNotFound) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if err := h.d.Defer(t.Context(), h.msg("main", "note"), chat.Caller{Principal: "bob", Own: true}); !errors.Is(err, chat.ErrSessionNotFound) {
			t.Errorf("a deferred text: %v", err)
		}
		want(t, "the turn", h.end(id).Outcome, chat.OutcomeAnswered)
	})
}

// hosting is a runner that keeps a resource for each session.
type hosting struct {
	stepping

	ended *[]string
}

func (hosting) Processes() agent.Processes { return agent.Processes{Living: 1, Most: 2, Memory: 3} }

func (r hosting) EndSession(key chat.SessionKey) { *r.ended = append(*r.ended, key.String()) }

// wherever is a runner that answers with the directory that was chosen for its session.
type wherever struct{}

func (wherever) Run(_ context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	answer := agent.NewAnswer(0, emit)
	return agent.Result{Text: "in " + req.Dir, StopReason: agent.StopNormal}, answer.Append("in " + req.Dir)
}

// The choice applies to one conversation, until the operator removes the directory from the list.
func TestAConversationChoosesAmongTheDirectoriesOfItsAgent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, messages := newStore(t), 0
		in := func(dirs ...string) *harness {
			return open(t, st, runBy(wherever{}), func(c *dispatch.Config) { c.Agents[0].Dirs = dirs })
		}
		own := func(m *chat.Message) { // message ids must be unique across the processes
			messages++
			m.ID = fmt.Sprintf("message-%d", messages)
		}
		h := in("/srv/app", "/srv/site")
		say := func(session, text, answer string) {
			t.Helper()
			got, _, _ := strings.Cut(h.end(h.send(session, text, own)).Text, "\n")
			want(t, text, got, answer)
		}
		say("agent:main:a", "/dir", "The agent works in /srv/app.")
		say("agent:main:a", "/dir 2", "From the next turn on the agent works in /srv/site.")
		say("agent:main:a", "hello", "in /srv/site")
		say("agent:main:a", "/dir", "The agent works in /srv/site.")
		say("agent:main:b", "hello", "in ")
		h.close()
		h = in("/srv/app", "/srv/site")
		say("agent:main:a", "hello", "in /srv/site")
		say("agent:main:a", "/dir default", "From the next turn on the agent works in /srv/app.")
		say("agent:main:a", "hello", "in ")
		say("agent:main:a", "/dir 2", "From the next turn on the agent works in /srv/site.")
		h.close()
		h = in("/srv/app")
		say("agent:main:a", "hello", "in ")
		say("agent:main:a", "/dir", "The agent works in /srv/app.")
		h.close()
	})
}

// The conversation was reset or deleted.
func TestAnAgentFreesConversationsThatAreOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var ended []string
		h := open(t, newStore(t), runBy(hosting{ended: &ended}))
		for _, session := range []string{"anew", "deleted", "kept"} {
			h.end(h.send("agent:main:"+session, "hello"))
		}
		h.end(h.send("agent:main:anew", "/new"))
		if _, err := h.d.Delete(t.Context(), store.DeleteParams{Session: chat.SessionKey{Agent: "main", Rest: "deleted"}}, chat.Caller{Principal: "tester"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantList(t, "freed", ended, []string{"agent:main:anew", "agent:main:deleted"})
		want(t, "programs", fmt.Sprint(h.d.Status(t.Context()).Programs), "[{main 1 2 3 0}]")
		h.close()
	})
}

// listsCounted is a store that counts the lists of sessions.
type listsCounted struct {
	dispatch.Store
	lists atomic.Int32
}

func (s *listsCounted) ListSessions(ctx context.Context, f store.SessionFilter) ([]store.Session, int, error) {
	s.lists.Add(1)
	return s.Store.ListSessions(ctx, f)
}

// Every process takes this picture once a second while a client is connected.
func TestStatusCountsNoSessions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &listsCounted{Store: newStore(t)}
		h := open(t, st)
		want(t, "the error of the store", h.d.Status(t.Context()).StoreError, "")
		want(t, "lists of sessions", st.lists.Load(), 0)
	})
}
