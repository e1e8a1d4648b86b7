package storetest

import (
	"encoding/json"
	"errors"
	"strconv"
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
		{"QuestionsOfATurnWhoseNodeHasEndedDoNotCount", questionsOfDeadNodes},
		{"OfTwoAnswersAtOnceOneCounts", questionRace},
		{"OpenQuestionsAreListedTheOldestFirst", questionsListed},
		{"AnAllowedCallOutlivesItsNode", questionTaken},
		{"LostCallOfAQuestionIsFound", lostQuestionIsFound},
		{"AnAnswerReachesTheTurnThatWaits", questionWaited},
		{"AQuestionOfATurnEndsWithTheTurn", questionClosed},
		{"AnAnswerThatCountsAlwaysIsKeptForThePersonAndTheTranscript", approvalsKept},
		{"TheOldestOfTooManyApprovalsGo", approvalsBounded},
		{"AQuestionOfATurnEndsWithItsNode", questionOfDeadNode},
		{"OfTwoOptionsAtOnceOneCounts", questionChoiceRace},
	}
}

func (w *world) ask(id, owner string) {
	w.Helper()
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: owner, Body: json.RawMessage(`{"tool":"r\u00fcckfrage"}`)}))
}

func (w *world) answers(id string, allow bool, node string) store.Question {
	w.Helper()
	return try(w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: id, By: "ann", Option: optionOf(allow), Allow: allow, Node: node})).ok(w)
}

func (w *world) refused(id, by string, allow bool) {
	w.Helper()
	try(w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: id, By: by, Option: optionOf(allow), Allow: allow, Node: "n"})).fails(w, chat.ErrNotFound)
}

func questionOnce(w *world) {
	node, id, denied := w.node(), w.id("q"), w.id("q")
	w.ask(id, "ann")
	w.ask(denied, "ann")
	q := w.answers(id, true, node)
	equal(w, "state", q.State, store.QuestionAllowed)
	equal(w, "call", string(q.Body), `{"tool":"r\u00fcckfrage"}`)
	equal(w, "expires", q.ExpiresAt, w.clock.now().Add(store.QuestionLife))
	w.refused(id, "ann", false)
	equal(w, "the same answer again", w.answers(id, true, node).State, store.QuestionAllowed)
	first := try(w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "done"})).ok(w)
	again := try(w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "something else", IsError: true})).ok(w)
	equal(w, "which end is the first", []bool{first, again}, []bool{true, false})
	q = w.answers(id, true, node)
	equal(w, "state after the call", q.State, store.QuestionDone)
	equal(w, "result", *q.Result, chat.ToolResult{Text: "done"})

	equal(w, "denied", w.answers(denied, false, node).State, store.QuestionDenied)
	w.refused(denied, "ann", true)
	ended := try(w.st.EndQuestion(w.ctx, denied, chat.ToolResult{Text: "done"})).ok(w)
	equal(w, "the end of a denied call", ended, false)
}

func questionOfAnother(w *world) {
	id := w.id("q")
	w.ask(id, "ann")
	w.refused(id, "bob", true)
	w.refused(id, "", true)
	w.refused(w.id("unknown"), "ann", true)
	equal(w, "it is still open", w.answers(id, true, w.node()).State, store.QuestionAllowed)
}

func questionEnds(w *world) {
	a, b, node := w.id("q"), w.id("q"), w.node()
	w.ask(a, "ann")
	w.ask(b, "ann")
	w.clock.advance(store.QuestionLife - time.Millisecond)
	equal(w, "just in time", w.answers(a, true, node).State, store.QuestionAllowed)
	w.clock.advance(time.Millisecond)
	w.refused(b, "ann", true)
	equal(w, "an answer in time is repeated late", w.answers(a, true, node).State, store.QuestionAllowed)
	w.clock.advance(2 * store.QuestionKept)
	w.ask(w.id("q"), "ann") // removes old questions, but none whose call is still to be made
	first := try(w.st.EndQuestion(w.ctx, a, chat.ToolResult{})).ok(w)
	equal(w, "the allowed call is still there", first, true)
}

func questionRepeated(w *world) {
	id := w.id("q")
	w.ask(id, "ann")
	w.clock.advance(time.Minute)
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: "mallory", Body: json.RawMessage(`{}`)}))
	w.refused(id, "mallory", true)
	q := w.answers(id, true, w.node())
	equal(w, "call", string(q.Body), `{"tool":"r\u00fcckfrage"}`)
	equal(w, "expires", q.ExpiresAt, w.clock.now().Add(store.QuestionLife-time.Minute))
}

func questionsBounded(w *world) {
	owner := w.id("ann")
	for range store.MaxQuestions {
		w.ask(w.id("q"), owner)
	}
	one := store.Question{ID: w.id("q"), Owner: owner, Body: json.RawMessage(`{}`)}
	w.fails(w.st.PutQuestion(w.ctx, one), store.ErrQuestionsFull)
	w.refused(one.ID, owner, true)
	w.ask(w.id("q"), w.id("bob"))
	w.clock.advance(store.QuestionLife)
	w.ok(w.st.PutQuestion(w.ctx, one))
}

func questionsOfDeadNodes(w *world) {
	owner, killed, other := w.id("ann"), w.node(), w.node()
	put := func(waits string) error {
		return w.st.PutQuestion(w.ctx, store.Question{ID: w.id("q"), Owner: owner, Body: json.RawMessage(`[]`), Waits: waits})
	}
	for i := range store.MaxQuestions - 1 {
		w.ok(put([]string{killed, other}[i%2]))
	}
	w.ok(put("")) // a tool call, which outlives its node
	w.fails(put(killed), store.ErrQuestionsFull)
	w.clock.advance(lease)
	next := w.node()
	for range store.MaxQuestions - 1 {
		w.ok(put(next))
	}
	w.fails(put(next), store.ErrQuestionsFull)
}

func questionsListed(w *world) {
	ann, bob, node := w.id("ann"), w.id("bob"), w.node()
	key := w.key()
	open := func(owner string, limit int) (ids []string) {
		w.Helper()
		for _, q := range try(w.st.OpenQuestions(w.ctx, owner, limit)).ok(w) {
			ids = append(ids, q.ID)
		}
		return ids
	}
	put := func(owner, waits string, life time.Duration) string {
		w.Helper()
		w.clock.advance(time.Second)
		id := w.id("q")
		w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: owner, Session: key, Body: json.RawMessage(`{"a":1}`), Waits: waits, Life: life}))
		return id
	}
	call, waited, short, bobs := put(ann, "", 0), put(ann, node, time.Minute), put(ann, "", 10*time.Second), put(bob, "", 0)
	equal(w, "of ann", open(ann, 10), []string{call, waited, short})
	equal(w, "of all", open("", 10), []string{call, waited, short, bobs})
	equal(w, "the first two", open("", 2), []string{call, waited})
	asked := w.clock.now().Add(-2 * time.Second)
	equal(w, "as it is listed", try(w.st.OpenQuestions(w.ctx, ann, 10)).ok(w)[1], store.Question{
		ID: waited, Owner: ann, Session: key, Body: json.RawMessage(`{"a":1}`), Waits: node, State: store.QuestionOpen, AskedAt: asked, ExpiresAt: asked.Add(time.Minute),
	})
	w.clock.advance(9 * time.Second) // short was asked a second before bobs
	equal(w, "after the time of one", open(ann, 10), []string{call, waited})
	w.clock.advance(lease)
	equal(w, "after the end of the node", open(ann, 10), []string{call})
	try(w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: call, By: ann, Option: 2, Node: node})).ok(w)
	equal(w, "after the answer", open(ann, 10), []string(nil))
}

func questionRace(w *world) {
	id, node := w.id("q"), w.node()
	w.ask(id, "ann")
	w.oneCounts(func(kind int) store.AnswerQuestion {
		return store.AnswerQuestion{ID: id, By: "ann", Allow: kind == 0, Node: node}
	})
}

// oneCounts gives eight concurrent answers of two kinds: all of one kind succeed, and none of the
// other. It returns that kind.
func (w *world) oneCounts(answer func(kind int) store.AnswerQuestion) int {
	w.Helper()
	won := w.winners(func(st store.Store, i int) (bool, error) {
		_, err := st.AnswerQuestion(w.ctx, answer(i%2))
		if errors.Is(err, chat.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	})
	equal(w, "answers that count", len(won), 4)
	for _, i := range won {
		equal(w, "kind of an answer that counts", i%2, won[0]%2)
	}
	return won[0] % 2
}

func questionTaken(w *world) {
	node, id := w.node(), w.id("q")
	w.ask(id, "ann")
	w.answers(id, true, node)
	equal(w, "while its node lives", len(w.taken(w.node())), 0)
	asked := w.clock.now()
	w.clock.advance(time.Minute)
	next := w.node()
	equal(w, "taken over", w.taken(next), []store.Question{{
		ID: id, Owner: "ann", State: store.QuestionAllowed, Body: json.RawMessage(`{"tool":"r\u00fcckfrage"}`), AskedAt: asked, ExpiresAt: asked.Add(store.QuestionLife),
	}})
	equal(w, "taken a second time", len(w.taken(w.node())), 0)
	first := try(w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "done"})).ok(w)
	equal(w, "ended by the next node", first, true)
	w.clock.advance(time.Minute)
	equal(w, "after its end", len(w.taken(w.node())), 0)
}

// optionOf is the number of the option that allows or denies a call.
func optionOf(allow bool) int {
	if allow {
		return 1
	}
	return 2
}

// waits makes a turn of a node wait for an answer of ann.
func (w *world) waits(id, node string) {
	w.Helper()
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: "ann", Body: json.RawMessage(`[{"label":"a"},{"label":"b"}]`), Waits: node, Life: time.Minute}))
}

func (w *world) choose(id, by string, option int) (store.Question, error) {
	return w.st.AnswerQuestion(w.ctx, store.AnswerQuestion{ID: id, By: by, Option: option, Allow: true, Node: "the node of the answer"})
}

func questionWaited(w *world) {
	node, id, late := w.node(), w.id("q"), w.id("q")
	w.waits(id, node)
	w.waits(late, node)
	q := try(w.st.Question(w.ctx, id)).ok(w)
	equal(w, "open", q, store.Question{
		ID: id, Owner: "ann", Body: json.RawMessage(`[{"label":"a"},{"label":"b"}]`), Waits: node, State: store.QuestionOpen, AskedAt: w.clock.now(), ExpiresAt: w.clock.now().Add(time.Minute),
	})
	try(w.choose(id, "bob", 1)).fails(w, chat.ErrNotFound)
	q = try(w.choose(id, "ann", 2)).ok(w)
	equal(w, "answered", []any{q.State, q.Option, q.Waits}, []any{store.QuestionChosen, 2, node})
	read := try(w.st.Question(w.ctx, id)).ok(w)
	equal(w, "as the turn reads it", read, q)
	try(w.choose(id, "ann", 1)).fails(w, chat.ErrNotFound)
	again := try(w.choose(id, "ann", 2)).ok(w)
	equal(w, "the same answer again", again, q)
	closed := try(w.st.CloseQuestion(w.ctx, id)).ok(w)
	equal(w, "an end after the answer", closed, q)
	equal(w, "calls to be made", len(w.taken(w.node())), 0)

	w.clock.advance(time.Minute)
	try(w.choose(late, "ann", 1)).fails(w, chat.ErrNotFound)
	try(w.st.Question(w.ctx, w.id("unknown"))).fails(w, chat.ErrNotFound)
}

func (w *world) taken(by string, inHand ...string) []store.Question {
	w.Helper()
	return try(w.st.TakeQuestions(w.ctx, store.TakeQuestionsParams{Node: by, InHand: inHand, Limit: 10})).ok(w)
}

// A call whose node does not know that it has it would otherwise be made only after the end of the
// node.
func lostQuestionIsFound(w *world) {
	node, other, id := w.node(), w.node(), w.id("q")
	w.ask(id, "ann")
	w.answers(id, true, node)
	equal(w, "while its node makes it", len(w.taken(node, id)), 0)
	equal(w, "by another node", len(w.taken(other)), 0)
	for range 2 {
		found := w.taken(node, "another call")
		equal(w, "by its node", len(found), 1)
		equal(w, "call", found[0].ID, id)
	}
	equal(w, "by another node after that", len(w.taken(other)), 0)
	try(w.st.EndQuestion(w.ctx, id, chat.ToolResult{Text: "done"})).ok(w)
	equal(w, "after its end", len(w.taken(node)), 0)
}

func questionClosed(w *world) {
	node, id, call := w.node(), w.id("q"), w.id("q")
	w.waits(id, node)
	w.ask(call, "ann")
	for range 2 {
		q := try(w.st.CloseQuestion(w.ctx, id)).ok(w)
		equal(w, "state", q.State, store.QuestionClosed)
	}
	try(w.choose(id, "ann", 1)).fails(w, chat.ErrNotFound)
	q := try(w.st.CloseQuestion(w.ctx, call)).ok(w)
	equal(w, "a call is not waited for", q.State, store.QuestionOpen)
	try(w.st.CloseQuestion(w.ctx, w.id("unknown"))).fails(w, chat.ErrNotFound)
}

func questionOfDeadNode(w *world) {
	id := w.id("q")
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: "ann", Body: json.RawMessage(`[]`), Waits: w.node()}))
	w.clock.advance(lease)
	try(w.choose(id, "ann", 1)).fails(w, chat.ErrNotFound)
	equal(w, "calls to be made", len(w.taken(w.node())), 0)
}

func questionChoiceRace(w *world) {
	id := w.id("q")
	w.waits(id, w.node())
	kind := w.oneCounts(func(kind int) store.AnswerQuestion {
		return store.AnswerQuestion{ID: id, By: "ann", Option: kind + 1, Allow: true, Node: "the node of the answer"}
	})
	q := try(w.st.Question(w.ctx, id)).ok(w)
	equal(w, "option", q.Option, kind+1)
}

// approve makes a person always allow an act, and returns the stored approval.
func (w *world) approve(owner string, key chat.SessionKey, act string) chat.Approval {
	w.Helper()
	id, node := w.id("q"), w.node()
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: id, Owner: owner, Session: key, Body: json.RawMessage(`{}`), Waits: node}))
	answer := store.AnswerQuestion{ID: id, By: owner, Option: 1, Allow: true, Always: &chat.Approval{Agent: "main", Act: act, Label: "Always"}}
	for range 2 { // the second is a repetition
		try(w.st.AnswerQuestion(w.ctx, answer)).ok(w)
	}
	return chat.Approval{ID: id, Agent: "main", Act: act, Label: "Always", At: w.clock.now()}
}

func (w *world) approvals(owner string, key chat.SessionKey) []chat.Approval {
	w.Helper()
	return try(w.st.Approvals(w.ctx, owner, key)).ok(w)
}

func (w *world) revoke(owner string, key chat.SessionKey, id string) int {
	w.Helper()
	return try(w.st.Revoke(w.ctx, owner, key, id)).ok(w)
}

func approvalsKept(w *world) {
	key, other := w.key(), w.key()
	w.write(key, 1, 1)
	w.write(other, 1, 1)
	first := w.approve("ann", key, "make")
	w.clock.advance(time.Second)
	second := w.approve("ann", key, "make install")
	w.clock.advance(time.Second)
	w.approve("ann", key, "make") // a second question about the same was open
	bobs, others := w.approve("bob", key, "make"), w.approve("ann", other, "make")
	w.st = w.h.Reopen()
	equal(w, "of ann", w.approvals("ann", key), []chat.Approval{first, second})
	equal(w, "of bob", w.approvals("bob", key), []chat.Approval{bobs})
	equal(w, "in another conversation", w.approvals("ann", other), []chat.Approval{others})

	equal(w, "revoked by another", w.revoke("bob", key, first.ID), 0)
	equal(w, "revoked elsewhere", w.revoke("ann", other, first.ID), 0)
	equal(w, "revoked", w.revoke("ann", key, first.ID), 1)
	equal(w, "after it", w.approvals("ann", key), []chat.Approval{second})
	third := w.approve("ann", key, "make")
	equal(w, "allowed again", w.approvals("ann", key), []chat.Approval{second, third})
	equal(w, "all revoked", w.revoke("ann", key, ""), 2)
	equal(w, "after that", w.approvals("ann", key), []chat.Approval(nil))

	w.approve("ann", key, "make")
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "second"})).ok(w)
	equal(w, "after the reset", w.approvals("ann", key), []chat.Approval(nil))
	next := w.approve("ann", key, "test")
	equal(w, "of the new transcript", w.approvals("ann", key), []chat.Approval{next})
	equal(w, "rows", len(w.h.Query(w.tb, `SELECT 1 FROM approvals WHERE owner = 'ann' AND session_key = '`+key.String()+`'`)), 1)
	unknown := w.key()
	w.approve("ann", unknown, "make")
	equal(w, "without a conversation", w.approvals("ann", unknown), []chat.Approval(nil))
}

func approvalsBounded(w *world) {
	key := w.key()
	w.write(key, 1, 1)
	var all []chat.Approval
	for i := range chat.MaxApprovals + 2 {
		all = append(all, w.approve("ann", key, strconv.Itoa(i)))
		w.clock.advance(time.Second)
	}
	equal(w, "kept", w.approvals("ann", key), all[2:])
}
