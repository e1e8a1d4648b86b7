package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// BenchmarkTurn is one durable turn: accept, start, finish with an answer in the transcript and one outbox row. Every worker
// has a hundred sessions.
func BenchmarkTurn(b *testing.B) {
	for _, workers := range []int{1, 8, 32, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchTurns(b, workers) })
	}
}

func benchTurns(b *testing.B, workers int) {
	b.Helper()
	s := open(b, postgres.Config{URL: testpg.DB(b), MaxConns: min(workers, 32)})
	defer func() { _ = s.Close() }()
	if err := s.Register(b.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range workers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := oneTurn(b.Context(), s, w, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

func oneTurn(ctx context.Context, s *postgres.Store, worker int, i int64) error {
	key := chat.SessionKey{Agent: "main", Rest: fmt.Sprintf("w%d-%d", worker, i%100)}
	id := fmt.Sprintf("m-%d-%d", worker, i)
	a, err := s.Accept(ctx, store.AcceptParams{Node: "n", Take: true, Cap: 10, Message: chat.Message{
		Session: key, ID: id, Lane: "main", Principal: "ann", Channel: "web", Dedupe: "d" + id, Content: chat.Content{Text: "how are you"},
	}})
	if err != nil {
		return err
	}
	c := store.Claim{Session: key, Node: "n", Epoch: a.Epoch}
	_, err = s.Start(ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: []chat.TranscriptEntry{
		{Role: chat.RoleUser, RunID: id, Text: "how are you"},
	}})
	if err != nil {
		return err
	}
	_, err = s.Finish(ctx, store.FinishParams{
		Claim: c, RunID: id, State: store.RunOK, Outcome: chat.OutcomeAnswered, Preview: "fine",
		Transcript: []chat.TranscriptEntry{{Role: chat.RoleAssistant, RunID: id, Text: "fine"}},
		Outgoing:   []store.Outgoing{{Kind: store.KindReply, Target: chat.Target{Channel: "web", ChatID: key.Rest}, Text: "fine"}},
	})
	return err
}
