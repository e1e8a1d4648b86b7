package postgres_test

import (
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

func TestOneTurn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, postgres.Config{URL: testpg.DB(t)})
	defer func() { _ = s.Close() }()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Ping(ctx))
	must(s.Register(ctx, store.Node{ID: "n1", Lease: 15 * time.Second}))
	key := chat.MainKey("main")
	a, err := s.Accept(ctx, store.AcceptParams{Node: "n1", Take: true, Cap: 10, Message: chat.Message{Session: key, ID: "m1", Lane: "main", Dedupe: "d1", Content: chat.Content{Text: "hi"}}})
	must(err)
	if !a.Mine || !a.Created || a.Seq != 1 || a.Epoch != 1 {
		t.Fatalf("accepted %+v", a)
	}
	c := store.Claim{Session: key, Node: "n1", Epoch: a.Epoch}
	st, err := s.Start(ctx, store.StartParams{Claim: c, RunID: "m1", Lane: "main", Seqs: []int64{1}, Transcript: []chat.TranscriptEntry{{Role: "user", Text: "hi", RunID: "m1"}}})
	must(err)
	if len(st.Seqs) != 1 || st.Attempt != 1 || len(st.Entries) != 1 || st.Entries[0].Seq != 1 {
		t.Fatalf("started %+v", st)
	}
	f, err := s.Finish(ctx, store.FinishParams{
		Claim: c, RunID: "m1", State: store.RunOK, Outcome: chat.OutcomeAnswered,
		Transcript: []chat.TranscriptEntry{{Role: "assistant", Text: "hello", RunID: "m1"}},
		Outgoing:   []store.Outgoing{{Kind: store.KindReply, Target: chat.Target{Channel: "web", ChatID: "1"}, Text: "hello"}},
	})
	must(err)
	if !f.Released || len(f.Entries) != 1 || f.Entries[0].Seq != 2 {
		t.Fatalf("finished %+v", f)
	}
	out, err := s.ClaimOutgoing(ctx, "n1", []string{"web"}, 10)
	must(err)
	if len(out) != 1 || out[0].Text != "hello" {
		t.Fatalf("outgoing %+v", out)
	}
}
