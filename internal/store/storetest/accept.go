package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func acceptTests() []test {
	return []test{
		{"SequenceHasNoGaps", sequenceHasNoGaps},
		{"FirstMessageMakesTheSession", firstMessageMakesTheSession},
		{"MessageReadsBack", messageReadsBack},
		{"SameKeyIsTheSameMessage", sameKeyIsTheSameMessage},
		{"DuplicateTellsHowFarItIs", duplicateReportsItsState},
		{"DuplicateOfFullQueueIsNoRefusal", duplicateAtFullQueue},
		{"DuplicateMakesNoSession", duplicateMakesNoSession},
		{"KeyReusedForOtherParameters", keyReusedForOtherParameters},
		{"KeyReusedUnderAnotherDedupe", keyReusedUnderAnotherDedupe},
		{"HashThatIsMissingIsNotCompared", missingHashIsNotCompared},
		{"MessagesWithoutDedupeAreDifferent", messagesWithoutDedupe},
		{"SecondNodeDoesNotTakeALiveSession", secondNodeDoesNotTake},
		{"WithoutTakeTheSessionHasNoOwner", withoutTakeHasNoOwner},
		{"CommandIsAnsweredAtOnce", commandIsAnsweredAtOnce},
		{"CommandBetweenMessagesMovesNothing", commandBetweenMessages},
		{"LookUpsOfUnknownNames", lookUpsOfUnknownNames},
	}
}

func sequenceHasNoGaps(w *world) {
	node, key, other := w.node(), w.key(), w.key()
	for want := int64(1); want <= 5; want++ {
		_, a := w.acceptText(node, key)
		equal(w, "sequence number", a.Seq, want)
		_, b := w.acceptText(node, other)
		equal(w, "sequence number of the other session", b.Seq, want)
	}
	refused := w.message(node, key)
	refused.Queue.Cap, refused.Queue.DropNew = 4, true
	try(w.st.Accept(w.ctx, refused)).fails(w, chat.ErrQueueFull)
	_, a := w.acceptText(node, key)
	equal(w, "sequence number after a refusal", a.Seq, 6)
	equal(w, "last_seq", w.session(key).LastSeq, 6)
}

func firstMessageMakesTheSession(w *world) {
	node, key := w.node(), w.key()
	try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	p := w.message(node, key)
	p.Queue.MaxConcurrent = 3
	a := w.accept(p)
	if !a.Created || !a.Mine || a.Owner != node || a.Epoch != 1 || a.SessionID == "" || a.Principal != "ann" {
		w.Fatalf("first message: %+v", a)
	}
	equal(w, "time of acceptance", a.AcceptedAt, w.clock.now())
	s := w.session(key)
	equal(w, "key", s.Key, key)
	equal(w, "run limit", s.RunLimit, 3)
	equal(w, "waiting", s.Waiting, 1)
	equal(w, "transcript", s.SessionID, a.SessionID)
	equal(w, "created", s.CreatedAt, w.clock.now())
	equal(w, "last message", s.LastMessageAt, w.clock.now())

	next := w.message(node, key)
	next.Message.Principal = "bob"
	b := w.accept(next)
	if b.Created || b.Principal != "ann" || b.SessionID != a.SessionID || b.Epoch != 1 || !b.Mine {
		w.Fatalf("second message: %+v", b)
	}
}

func messageReadsBack(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Message.Lane, p.Message.Channel, p.Message.ExternalID = "cron", "hook", 77
	p.Message.Content.Thread = "t1"
	p.Message.Content.System, p.Message.Content.External = true, true
	p.Message.Content.Attachments = []chat.Attachment{{Name: "a.txt", MIMEType: "text/plain", Path: "1/a", Size: 3}}
	p.Message.Content.Context = []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "before", At: w.clock.now()}}
	p.Message.Content.Options = chat.Options{
		Mode: chat.ModeCollect, TimeoutMs: 9, AtMostOnce: true, Model: "m", Params: map[string]any{"a": "b"},
		ReplyTo: chat.Target{Channel: "web", ChatID: "1"},
	}
	a := w.accept(p)
	want := store.Waiting{
		Session: key, Seq: a.Seq, MessageID: p.Message.ID, State: store.StateWaiting, Lane: "cron", Principal: "ann",
		Channel: "hook", ExternalID: 77, Content: p.Message.Content, AcceptedAt: w.clock.now(),
	}
	equal(w, "message by id", w.row(p.Message.ID), want)
	list, total, err := w.st.PendingInputs(w.ctx, key, 0, 10)
	w.ok(err)
	equal(w, "pending", list, []store.Waiting{want})
	equal(w, "number of pending", total, 1)
}

func sameKeyIsTheSameMessage(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	first := w.accept(p)
	w.clock.advance(time.Second)
	for _, id := range []string{p.Message.ID, w.id("msg")} { // the repeated call, and a provider that sends it again
		again := p
		again.Message.ID = id
		a := w.accept(again)
		if !a.Duplicate || a.Seq != first.Seq || a.Existing.MessageID != p.Message.ID || len(a.Dropped) > 0 || a.Created {
			w.Fatalf("duplicate: %+v", a)
		}
		equal(w, "time of acceptance", a.AcceptedAt, first.AcceptedAt)
	}
	equal(w, "unfinished", w.unfinished(), 1)
	_, next := w.acceptText(node, key)
	equal(w, "sequence number after duplicates", next.Seq, 2)
}

func duplicateReportsItsState(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	a := w.accept(p)
	equal(w, "state", w.accept(p).Existing.State, store.StateWaiting)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	running := w.accept(p)
	equal(w, "state", running.Existing.State, store.StateRunning)
	equal(w, "run", running.Existing.RunID, p.Message.ID)
	w.finish(answered(c, p.Message.ID))
	done := w.accept(p)
	equal(w, "state", done.Existing.State, store.StateDone)
	equal(w, "outcome", done.Existing.Outcome, chat.OutcomeAnswered)
	equal(w, "owner after a duplicate of something done", w.session(key).Owner, "")
}

func duplicateAtFullQueue(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Queue.Cap, p.Queue.DropNew = 1, true
	w.accept(p)
	if a := w.accept(p); !a.Duplicate {
		w.Fatalf("want a duplicate, got %+v", a)
	}
	p.Queue.DropNew = false
	if a := w.accept(p); !a.Duplicate || len(a.Dropped) > 0 {
		w.Fatalf("want a duplicate that drops nothing, got %+v", a)
	}
	w.cap = 1
}

func duplicateMakesNoSession(w *world) {
	node, key, other := w.node(), w.key(), w.key()
	p := w.message(node, key)
	w.accept(p)
	p.Message.Session = other
	a, err := w.st.Accept(w.ctx, p)
	if err == nil && (!a.Duplicate || a.Existing.Session != key) {
		w.Fatalf("the same key for another session: %+v", a)
	}
	try(w.st.Session(w.ctx, other, "")).fails(w, chat.ErrSessionNotFound)
}

func keyReusedForOtherParameters(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	w.accept(p)
	p.Message.ParamsHash = "another"
	try(w.st.Accept(w.ctx, p)).fails(w, chat.ErrKeyReused)
	p.Message.ID = w.id("msg")
	try(w.st.Accept(w.ctx, p)).fails(w, chat.ErrKeyReused)
	try(w.st.MessageByID(w.ctx, p.Message.ID)).fails(w, chat.ErrNotFound)
	equal(w, "last_seq", w.session(key).LastSeq, 1)
}

func keyReusedUnderAnotherDedupe(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	w.accept(p)
	for _, dedupe := range []string{"another", ""} {
		for _, p.Message.Session = range []chat.SessionKey{key, w.key()} {
			p.Message.Dedupe = dedupe
			try(w.st.Accept(w.ctx, p)).fails(w, chat.ErrKeyReused)
		}
	}
	equal(w, "last_seq", w.session(key).LastSeq, 1)
	_, next := w.acceptText(node, key)
	equal(w, "sequence number after refusals", next.Seq, 2)
}

func missingHashIsNotCompared(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	w.accept(p)
	p.Message.ParamsHash = ""
	if a := w.accept(p); !a.Duplicate {
		w.Fatalf("want a duplicate, got %+v", a)
	}
}

func messagesWithoutDedupe(w *world) {
	node, key := w.node(), w.key()
	for want := int64(1); want <= 3; want++ {
		p := w.message(node, key)
		p.Message.Dedupe, p.Message.ParamsHash = "", ""
		equal(w, "sequence number", w.accept(p).Seq, want)
		if a := w.accept(p); !a.Duplicate || a.Seq != want {
			w.Fatalf("the same id again: %+v", a)
		}
	}
}

func secondNodeDoesNotTake(w *world) {
	first, second, key := w.node(), w.node(), w.key()
	w.acceptText(first, key)
	_, a := w.acceptText(second, key)
	if a.Mine || a.Owner != first || a.Epoch != 1 {
		w.Fatalf("a live session changed hands: %+v", a)
	}
}

func withoutTakeHasNoOwner(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Take = false
	a := w.accept(p)
	if a.Mine || a.Owner != "" {
		w.Fatalf("an accept without Take owns: %+v", a)
	}
	taken := w.sweepOne(node, key)
	equal(w, "messages", idsOf(taken.Messages), []string{p.Message.ID})
	if taken.Epoch <= a.Epoch {
		w.Fatalf("epoch %d after the sweep, %d before", taken.Epoch, a.Epoch)
	}
}

func commandIsAnsweredAtOnce(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Unqueued, p.Queue.Cap, p.Queue.DropNew = true, 1, true
	a := w.accept(p)
	if a.Mine || a.Owner != "" || a.Seq != 1 {
		w.Fatalf("a command took ownership: %+v", a)
	}
	w.ended(p.Message.ID, chat.OutcomeAnswered)
	s := w.session(key)
	equal(w, "numbers", []int64{s.LastSeq, s.TakenSeq, s.DoneSeq}, []int64{1, 1, 1})
	equal(w, "waiting", s.Waiting, 0)
	if again := w.accept(p); !again.Duplicate {
		w.Fatalf("want a duplicate, got %+v", again)
	}
	equal(w, "swept", len(w.sweep(node)), 0)
}

func commandBetweenMessages(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Queue.Cap, p.Queue.DropNew = 1, true
	a := w.accept(p)
	command := w.message(node, key)
	command.Unqueued, command.Queue.Cap, command.Queue.DropNew = true, 1, true
	equal(w, "sequence number of the command", w.accept(command).Seq, 2)
	s := w.session(key)
	equal(w, "done_seq under a waiting message", s.DoneSeq, 0)
	equal(w, "waiting", s.Waiting, 1)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	if f := w.finish(answered(c, p.Message.ID)); !f.Released {
		w.Fatalf("ownership kept although nothing is left")
	}
	equal(w, "done_seq passes the command", w.session(key).DoneSeq, 2)
	w.cap = 1
}

func lookUpsOfUnknownNames(w *world) {
	try(w.st.MessageByID(w.ctx, "absent")).fails(w, chat.ErrNotFound)
	try(w.st.RunByID(w.ctx, "absent")).fails(w, chat.ErrNotFound)
	list, total, err := w.st.PendingInputs(w.ctx, w.key(), 0, 10)
	w.ok(err)
	equal(w, "pending", len(list)+total, 0)
	equal(w, "unfinished", w.unfinished(), 0)
	w.ok(w.st.Ping(w.ctx))
	now := try(w.st.Now(w.ctx)).ok(w)
	equal(w, "the store's clock", now.UTC(), w.clock.now())
}

func valueTests() []test {
	return []test{
		{"TextOfEveryScript", textOfEveryScript},
		{"NulIsKeptOrRefused", nulIsKeptOrRefused},
		{"TenMegabytes", tenMegabytes},
		{"NumbersBeyond32Bits", numbersBeyond32Bits},
		{"LongestNames", longestNames},
		{"TimesKeepTheirMillisecond", timesKeepTheirMillisecond},
		{"KindIsAWord", kindIsAWord},
	}
}

// script is text that has broken engines and drivers: several scripts, direction marks, a joined
// emoji, quotes, a backslash, a dollar placeholder, line ends and a control character.
const script = "grüße 你好 שלום مرحبا 👩‍👩‍👧‍👦 e\u0301 \u202e \"'`;-- \\ $1 %s :now ? \r\n\t\x01 \ufffd \U0010ffff"

func textOfEveryScript(w *world) {
	node := w.node()
	key := chat.SessionKey{Agent: "main", Rest: "telegram:group:-100:topic:日本'\"\\%_"}
	p := w.message(node, key)
	p.Message.Principal = "tg:" + script
	p.Message.Content.Text = script
	p.Message.Content.Sender.Name = script
	p.Message.Dedupe = "键:" + p.Message.ID
	a := w.accept(p)
	w.ok(w.st.SetSession(w.ctx, key, "x", store.SessionSettings{Notes: map[string]string{"ключ": script}}))
	c := claimOf(key, a)
	s := w.start(c, p.Message.ID, a.Seq)
	equal(w, "note", s.Notes["ключ"], script)
	f := answered(c, p.Message.ID)
	f.Error, f.Preview = script, script
	f.Transcript = []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: script, Sender: chat.Sender{Name: script}}}
	f.Outgoing = []store.Outgoing{{Kind: store.KindReply, Text: script, Session: key, Target: chat.Target{Channel: "web", ChatID: "чат", Thread: "話"}}}
	w.finish(f)
	m := w.row(p.Message.ID)
	equal(w, "session, text, name and principal", []any{m.Session, m.Content.Text, m.Content.Sender.Name, m.Principal}, []any{key, script, script, "tg:" + script})
	equal(w, "error", w.run(p.Message.ID).Error, script)
	equal(w, "preview", w.session(key).Preview, script)
	tr := w.transcript(store.TranscriptQuery{Session: key})
	equal(w, "entry", []string{tr.Entries[0].Text, tr.Entries[0].Sender.Name}, []string{script, script})
	o := w.claimOne(node)
	equal(w, "outgoing", []any{o.Text, o.Target, o.Session}, []any{script, f.Outgoing[0].Target, key})
}

// nulIsKeptOrRefused: U+0000 is refused at the boundary. If one reaches the store, the store may
// keep it or refuse it, but a refusal writes nothing and is not reported as an outage, which
// callers would retry forever.
func nulIsKeptOrRefused(w *world) {
	node, key := w.node(), w.key()
	w.acceptText(node, key)
	p := w.message(node, key)
	p.Message.Content.Text = "a\x00b"
	_, err := w.st.Accept(w.ctx, p)
	if err == nil {
		equal(w, "text", w.row(p.Message.ID).Content.Text, "a\x00b")
		return
	}
	if errors.Is(err, chat.ErrStoreUnavailable) {
		w.Fatalf("a string that the engine cannot store is reported as an outage: %v", err)
	}
	try(w.st.MessageByID(w.ctx, p.Message.ID)).fails(w, chat.ErrNotFound)
	_, a := w.acceptText(node, key)
	equal(w, "sequence number after the refusal", a.Seq, 2)
}

func tenMegabytes(w *world) {
	node, key := w.node(), w.key()
	text := strings.Repeat("0123456789abcdeé", 10<<20/17)
	p := w.message(node, key)
	p.Message.Content.Text = text
	a := w.accept(p)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	f := answered(c, p.Message.ID)
	f.Preview = text
	f.Transcript = []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: text}}
	f.Outgoing = []store.Outgoing{{Kind: store.KindReply, Text: text, Session: key, Target: chat.Target{Channel: "web", ChatID: "1"}}}
	w.finish(f)
	for what, same := range map[string]bool{
		"message":    w.row(p.Message.ID).Content.Text == text,
		"transcript": w.transcript(store.TranscriptQuery{Session: key}).Entries[0].Text == text,
		"outgoing":   w.claimOne(node).Text == text,
		"preview":    w.session(key).Preview == chat.Cut(text, 200),
	} {
		equal(w, what+" of ten megabytes", same, true)
	}
}

func numbersBeyond32Bits(w *world) {
	const big = int64(1)<<62 + 3
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Message.Channel, p.Message.ExternalID = poller, big
	a := w.accept(p)
	equal(w, "external id", w.row(p.Message.ID).ExternalID, big)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	f := answered(c, p.Message.ID)
	f.Usage = chat.Usage{InputTokens: math.MaxUint32 + 5, OutputTokens: math.MaxUint32}
	f.Transcript = []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: "x", Tokens: math.MaxUint32 + 7}}
	w.finish(f)
	equal(w, "usage", w.run(p.Message.ID).Usage, f.Usage)
	equal(w, "tokens of the session", w.session(key).TotalTokens, f.Usage.InputTokens+f.Usage.OutputTokens)
	equal(w, "tokens of the entry", w.transcript(store.TranscriptQuery{Session: key}).Entries[0].Tokens, math.MaxUint32+7)
	negative := w.message(node, key)
	negative.Message.ExternalID = -big
	w.accept(negative)
	equal(w, "negative external id", w.row(negative.Message.ID).ExternalID, -big)
}

func longestNames(w *world) {
	node := w.node()
	key := chat.SessionKey{Agent: "main", Rest: strings.Repeat("名", chat.MaxSessionKey-len("agent:main:"))}
	p := w.message(node, key)
	p.Message.ID = strings.Repeat("i", chat.MaxMessageID)
	p.Message.Dedupe = strings.Repeat("d", 1024)
	w.accept(p)
	equal(w, "session", w.row(p.Message.ID).Session, key)
	if a := w.accept(p); !a.Duplicate {
		w.Fatalf("want a duplicate, got %+v", a)
	}
}

func timesKeepTheirMillisecond(w *world) {
	node, key := w.node(), w.key()
	w.clock.advance(7 * time.Millisecond)
	_, a := w.acceptText(node, key)
	list, _, err := w.st.PendingInputs(w.ctx, key, 0, 1)
	w.ok(err)
	equal(w, "times of acceptance", []time.Time{a.AcceptedAt.UTC(), list[0].AcceptedAt.UTC()}, []time.Time{w.clock.now(), w.clock.now()})
	equal(w, "time that is not set", w.session(w.touched()).LastMessageAt.IsZero(), true)
}

// touched is a session that never had a message.
func (w *world) touched() chat.SessionKey {
	w.Helper()
	key := w.key()
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"a": "b"}}))
	return key
}

func kindIsAWord(w *world) {
	kinds := fmt.Sprint([]string{"postgres", "sqlite"})
	if kind := w.st.Kind(); kind == "" || !strings.Contains(kinds, kind) {
		w.Fatalf("kind %q, want one of %s", kind, kinds)
	}
}
