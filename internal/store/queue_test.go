package store

import (
	"errors"
	"slices"
	"testing"

	"laneway/internal/chat"
)

// TestAFullQueueDisplaces has five messages: the first has a slot, the second is held, the others wait.
func TestAFullQueueDisplaces(t *testing.T) {
	t.Parallel()
	waiting := []Waiting{{Seq: 1, State: StateWaiting}, {Seq: 2, State: StateHeld}, {Seq: 3, State: StateWaiting}, {Seq: 4, State: StateWaiting}, {Seq: 5, State: StateWaiting}}
	for name, c := range map[string]struct {
		p       AcceptParams
		stored  chat.QueueMode
		seqs    []int64
		outcome chat.Outcome
		err     error
	}{
		"without a bound":           {p: AcceptParams{}},
		"with a place":              {p: AcceptParams{Cap: 4}},
		"the oldest one":            {p: AcceptParams{Cap: 3, Drop: chat.DropOld}, seqs: []int64{3}, outcome: chat.OutcomeDropped},
		"all that are too many":     {p: AcceptParams{Cap: 1, Drop: chat.DropOld}, seqs: []int64{3, 4, 5}, outcome: chat.OutcomeDropped},
		"the new one":               {p: AcceptParams{Cap: 3, Drop: chat.DropNew}, err: chat.ErrQueueFull},
		"an interrupt":              {p: AcceptParams{Cap: 3, Drop: chat.DropNew, Mode: chat.ModeInterrupt}, seqs: []int64{2, 3, 4, 5}, outcome: chat.OutcomeSuperseded},
		"a session that interrupts": {p: AcceptParams{Cap: 3}, stored: chat.ModeInterrupt, seqs: []int64{2, 3, 4, 5}, outcome: chat.OutcomeSuperseded},
		"an interrupt with a place": {p: AcceptParams{Cap: 4, Mode: chat.ModeInterrupt}},
		"one that joins":            {p: AcceptParams{Cap: 1, Drop: chat.DropNew, Joins: true}},
		"a command":                 {p: AcceptParams{Cap: 1, Drop: chat.DropNew, Unqueued: true}},
	} {
		c.p.Starting = []int64{1}
		seqs, outcome, err := c.p.Displaces(waiting, c.stored)
		if !slices.Equal(seqs, c.seqs) || outcome != c.outcome || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %s, %v, want %v, %s, %v", name, seqs, outcome, err, c.seqs, c.outcome, c.err)
		}
	}
}

func TestAStopSelects(t *testing.T) {
	t.Parallel()
	running := []Run{{ID: "stopping", StopBy: "ann"}, {ID: "first"}, {ID: "second"}}
	waiting := []Waiting{{MessageID: "a"}, {MessageID: "b"}}
	for name, c := range map[string]struct {
		p        StopParams
		running  []Run
		named    string
		runs     []string
		messages []string
		fails    bool
	}{
		"everything":                       {p: StopParams{Scope: StopAll}, running: running, runs: []string{"stopping", "first", "second"}, messages: []string{"a", "b"}},
		"one that is not asked yet":        {p: StopParams{Scope: StopOne}, running: running, runs: []string{"first"}},
		"a message when no other run runs": {p: StopParams{Scope: StopOne}, running: running[:1], messages: []string{"a"}},
		"the run of a name":                {p: StopParams{Scope: StopRun, MessageID: "m"}, running: running, named: "second", runs: []string{"second"}},
		"the message of a name":            {p: StopParams{Scope: StopRun, MessageID: "b"}, running: running, named: "b", messages: []string{"b"}},
		"no such name":                     {p: StopParams{Scope: StopRun, MessageID: "x"}, running: running, named: "x"},
		"no such scope":                    {p: StopParams{Scope: "some"}, running: running, fails: true},
	} {
		runs, messages, err := c.p.Meets(c.running, waiting, c.named)
		var ids, names []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		for _, m := range messages {
			names = append(names, m.MessageID)
		}
		if !slices.Equal(ids, c.runs) || !slices.Equal(names, c.messages) || err != nil != c.fails {
			t.Errorf("%s: runs %v, messages %v, %v, want %v and %v", name, ids, names, err, c.runs, c.messages)
		}
	}
}
