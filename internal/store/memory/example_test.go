package memory_test

import (
	"context"
	"fmt"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/memory"
)

// One message on its way: accepted, run, answered.
func ExampleNew() {
	ctx := context.Background()
	st := memory.New(memory.Config{})
	defer st.Close()
	if err := st.Register(ctx, store.Node{ID: "node-1"}); err != nil {
		fmt.Println(err)
		return
	}
	a, err := st.Accept(ctx, store.AcceptParams{
		Node: "node-1", Take: true,
		Message: chat.Message{ID: "m1", Session: chat.MainKey("main"), Content: chat.Content{Text: "hello"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	claim := store.Claim{Session: chat.MainKey("main"), Node: "node-1", Epoch: a.Epoch}
	s, err := st.Start(ctx, store.StartParams{Claim: claim, RunID: "m1", Lane: "main", Seqs: []int64{a.Seq}})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := st.Finish(ctx, store.FinishParams{Claim: claim, RunID: "m1", State: store.RunOK, Outcome: chat.OutcomeAnswered})
	fmt.Println(s.Seqs, f.Released, err)
	// Output: [1] true <nil>
}
