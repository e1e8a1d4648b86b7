package storetest

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func questionTests() []test {
	return []test{
		{"AQuestionIsAnsweredOnce", questionOnce},
		{"AnAnswerOfAnotherPersonIsRefused", questionOfAnother},
		{"AQuestionEndsAfterItsTime", questionEnds},
		{"ARepeatedQuestionChangesNothing", questionRepeated},
		{"APersonHasABoundedNumberOfOpenQuestions", questionsBounded},
		{"OfTwoAnswersAtOnceOneCounts", questionRace},
		{"AnAllowedCallOutlivesItsNode", questionTaken},
	}
}

func (w *world) ask(id, owner string) {
	w.Helper()
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: owner, Call: json.RawMessage(`{"tool":"r\u00fcckfrage"}`)}))
}

func (w *world) answers(id, by string, allow bool, node string) store.Question {
	w.Helper()
	q, err := w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: id, By: by, Allow: allow, Node: node})
	w.ok(err)
	return q
}

func (w *world) refused(id, by string, allow bool) {
	w.Helper()
	_, err := w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: id, By: by, Allow: allow, Node: "n"})
	w.fails(err, chat.ErrNotFound)
}

func questionOnce(w *world) {
	node, id, denied := w.node(), w.id("q"), w.id("q")
	w.ask(id, "ann")
	w.ask(denied, "ann")
	q := w.answers(id, "ann", true, node)
	equal(w, "state", q.State, store.QuestionAllowed)
	equal(w, "call", string(q.Call), `{"tool":"r\u00fcckfrage"}`)
	equal(w, "expires", q.ExpiresAt, w.clock.now().Add(store.QuestionLife))
	w.refused(id, "ann", false)
	equal(w, "the same answer again", w.answers(id, "ann", true, node).State, store.QuestionAllowed)
	first, err := w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "done"})
	w.ok(err)
	again, err := w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "something else", IsError: true})
	w.ok(err)
	equal(w, "which end is the first", []bool{first, again}, []bool{true, false})
	q = w.answers(id, "ann", true, node)
	equal(w, "state after the call", q.State, store.QuestionDone)
	equal(w, "result", *q.Result, chat.ToolResult{Text: "done"})

	equal(w, "denied", w.answers(denied, "ann", false, node).State, store.QuestionDenied)
	w.refused(denied, "ann", true)
	ended, err := w.st.EndQuestion(w.ctx, denied, chat.ToolResult{Text: "done"})
	w.ok(err)
	equal(w, "the end of a denied call", ended, false)
}

func questionOfAnother(w *world) {
	id := w.id("q")
	w.ask(id, "ann")
	w.refused(id, "bob", true)
	w.refused(id, "", true)
	w.refused(w.id("unknown"), "ann", true)
	equal(w, "it is still open", w.answers(id, "ann", true, w.node()).State, store.QuestionAllowed)
}

func questionEnds(w *world) {
	a, b, node := w.id("q"), w.id("q"), w.node()
	w.ask(a, "ann")
	w.ask(b, "ann")
	w.clock.advance(store.QuestionLife - time.Millisecond)
	equal(w, "just in time", w.answers(a, "ann", true, node).State, store.QuestionAllowed)
	w.clock.advance(time.Millisecond)
	w.refused(b, "ann", true)
	equal(w, "an answer in time is repeated late", w.answers(a, "ann", true, node).State, store.QuestionAllowed)
	w.clock.advance(2 * store.QuestionKept)
	w.ask(w.id("q"), "ann") // removes what is old, but no call that has to be made
	first, err := w.st.EndQuestion(w.ctx, a, chat.ToolResult{})
	w.ok(err)
	equal(w, "the allowed call is still there", first, true)
}

func questionRepeated(w *world) {
	id := w.id("q")
	w.ask(id, "ann")
	w.clock.advance(time.Minute)
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: "mallory", Call: json.RawMessage(`{}`)}))
	w.refused(id, "mallory", true)
	q := w.answers(id, "ann", true, w.node())
	equal(w, "call", string(q.Call), `{"tool":"r\u00fcckfrage"}`)
	equal(w, "expires", q.ExpiresAt, w.clock.now().Add(store.QuestionLife-time.Minute))
}

func questionsBounded(w *world) {
	owner := w.id("ann")
	for range store.MaxQuestions {
		w.ask(w.id("q"), owner)
	}
	one := store.Question{ID: w.id("q"), Owner: owner, Call: json.RawMessage(`{}`)}
	w.fails(w.st.PutQuestion(w.ctx, one), store.ErrQuestionsFull)
	w.refused(one.ID, owner, true)
	w.ask(w.id("q"), w.id("bob"))
	w.clock.advance(store.QuestionLife)
	w.ok(w.st.PutQuestion(w.ctx, one))
}

func questionRace(w *world) {
	id, node := w.id("q"), w.node()
	w.ask(id, "ann")
	var (
		wg      sync.WaitGroup
		allowed atomic.Int64
		denied  atomic.Int64
	)
	for i := range 8 {
		wg.Go(func() {
			_, err := w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: id, By: "ann", Allow: i%2 == 0, Node: node})
			switch {
			case err == nil && i%2 == 0:
				allowed.Add(1)
			case err == nil:
				denied.Add(1)
			}
		})
	}
	wg.Wait()
	if a, d := allowed.Load(), denied.Load(); a*d != 0 || a+d != 4 {
		w.Errorf("%d answers allowed and %d denied the same call", a, d)
	}
}

func questionTaken(w *world) {
	node, id := w.node(), w.id("q")
	w.ask(id, "ann")
	w.answers(id, "ann", true, node)
	take := func(by string) []store.Question {
		list, err := w.st.TakeQuestions(w.ctx, by, 10)
		w.ok(err)
		return list
	}
	equal(w, "while its node lives", len(take(w.node())), 0)
	w.clock.advance(time.Minute)
	next := w.node()
	list := take(next)
	if len(list) != 1 || list[0].ID != id || list[0].Owner != "ann" || list[0].State != store.QuestionAllowed || string(list[0].Call) != `{"tool":"r\u00fcckfrage"}` {
		w.Fatalf("taken over: %+v", list)
	}
	equal(w, "taken a second time", len(take(w.node())), 0)
	first, err := w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "done"})
	w.ok(err)
	equal(w, "ended by the next node", first, true)
	w.clock.advance(time.Minute)
	equal(w, "after its end", len(take(w.node())), 0)
}
