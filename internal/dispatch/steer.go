package dispatch

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// takeInput returns a function with which a runner fetches messages that people write to the session while its turn runs (mode steer). The
// messages join the run in the store before the runner sees them, so that a crash loses none.
func (ts *turns) takeInput(ctx context.Context, t *turn, st *scheduler.Turn[work]) func() []chat.Content {
	return func() []chat.Content {
		st.AcceptInput() // the runner supports input; before its first call, mode steer waits like mode queue
		var (
			rows  []store.Waiting
			texts []fromWhom
		)
		for _, it := range st.TakeInput() {
			rows, texts = append(rows, it.Payload.rows...), append(texts, sendersOf(it)...)
		}
		if len(rows) == 0 {
			return nil
		}
		p := store.StartParams{Claim: t.claim, RunID: t.run.RunID, Lane: t.run.Lane, Round: t.journal.last()}
		for _, r := range rows {
			p.Seqs = append(p.Seqs, r.Seq)
			p.Transcript, p.EntrySeqs = append(p.Transcript, entryOf(r, t.run.RunID)), append(p.EntrySeqs, r.Seq)
		}
		var joined []int64
		err := ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
			joined, err = t.from.Join(ctx, p)
			return err
		})
		if err != nil {
			ts.log.WarnContext(ctx, "messages could not join their turn", "session", t.run.Session.String(), "run_id", t.run.RunID, "err", err)
			return nil
		}
		rows = rowsWith(rows, joined)
		t.journal.add(texts, joined)
		input := make([]chat.Content, 0, len(rows))
		for _, r := range rows {
			input = append(input, r.Content)
		}
		return input
	}
}
