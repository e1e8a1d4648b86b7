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

// script is text that has broken engines and drivers: several scripts, direction marks, a joined emoji, quotes, a backslash, a dollar placeholder, line ends
// and a control character.
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

// nulIsKeptOrRefused: U+0000 is refused at the boundary. If one reaches the store, the store may keep it or refuse it, but a refusal writes nothing and is not
// reported as an outage, which callers would retry forever.
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
