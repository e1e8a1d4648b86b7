package store

import (
	"context"
	"encoding/json"
	"fmt"

	"laneway/internal/chat"
)

// Journal records what the models of running turns requested and the results. It spans all attempts of a run and is removed when the run ends
// ([FinishParams.Journal]).
type Journal interface {
	// Record commits the request of a model ([AskedRow]), or the result of a call of a recorded round ([ResultRow]). A recorded row never changes: recording it
	// again is a no-op, so a repetition after an unknown commit is harmless. chat.ErrFenced: the run does not run under this claim.
	Record(ctx context.Context, c Claim, runID string, row JournalRow) error
	// RecordPreview commits what shows the unfinished answer of a run, in the form of its channel: later attempts get it as [Started].Preview. chat.ErrFenced as
	// for Record.
	RecordPreview(ctx context.Context, c Claim, runID, preview string) error
	// RecordOutside commits that the agent of a run has read text from outside by its own tools: later attempts get it as [Started].Outside. chat.ErrFenced as
	// for Record.
	RecordOutside(ctx context.Context, c Claim, runID string) error
	// RecordProgram commits which process works for a run: the next attempt gets it as [Started].Program. chat.ErrFenced as for Record.
	RecordProgram(ctx context.Context, c Claim, runID string, p chat.Program) error
	// Rounds reads the recorded rounds of a run in order; empty when the run has no journal. The caller bounds what it records for a run to less than
	// [ReadBytes].
	Rounds(ctx context.Context, runID string) ([]Round, error)
}

// Round is a recorded round.
type Round struct {
	chat.Round

	// Input are the numbers of the messages that joined the run after the results ([StartParams.Round]), ascending.
	Input []int64
}

// CallRef identifies a call of a run: Round counts from 1, Call from 0.
type CallRef struct{ Round, Call int }

// The kinds of rows of a journal.
const (
	RowAsked  = "asked"  // Body is the request of the model, N is 0
	RowResult = "result" // Body is the result of the call N
	RowInput  = "input"  // the message N joined; Body is empty
)

// JournalRow is a row of the table turn_rounds.
type JournalRow struct {
	Round int
	Kind  string
	N     int64
	Body  string
}

// asked is the body of a row of kind [RowAsked].
type asked struct {
	Text  string          `json:"text,omitempty"`
	Calls []chat.ToolCall `json:"calls"`
	Usage chat.Usage      `json:"usage"`
	Extra json.RawMessage `json:"extra,omitempty"`
}

// AskedRow is the row for the request of a model: the text, the calls, the usage and the extra of a round, without its results.
func AskedRow(r chat.Round) (JournalRow, error) {
	body, err := json.Marshal(asked{Text: r.Text, Calls: r.Calls, Usage: r.Usage, Extra: r.Extra})
	if err != nil {
		return JournalRow{}, fmt.Errorf("encoding round %d: %w", r.Number, err)
	}
	return JournalRow{Round: r.Number, Kind: RowAsked, Body: string(body)}, nil
}

// ResultRow is the row of a result.
func ResultRow(at CallRef, result chat.ToolResult) (JournalRow, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return JournalRow{}, fmt.Errorf("encoding the result of call %d in round %d: %w", at.Call, at.Round, err)
	}
	return JournalRow{Round: at.Round, Kind: RowResult, N: int64(at.Call), Body: string(body)}, nil
}

// RoundsOf assembles the rounds of a run from its rows. They come ordered by round, kind and N, as the primary key orders them: asked, input, result.
func RoundsOf(rows []JournalRow) ([]Round, error) {
	var rounds []Round
	for _, row := range rows {
		if row.Kind == RowAsked {
			var a asked
			if err := json.Unmarshal([]byte(row.Body), &a); err != nil {
				return nil, fmt.Errorf("reading round %d: %w", row.Round, err)
			}
			rounds = append(rounds, Round{Round: chat.Round{
				Number: row.Round, Text: a.Text, Calls: a.Calls, Usage: a.Usage, Extra: a.Extra, Results: make([]*chat.ToolResult, len(a.Calls)),
			}})
			continue
		}
		if len(rounds) == 0 || rounds[len(rounds)-1].Number != row.Round {
			return nil, fmt.Errorf("reading round %d: a row %s without what was asked", row.Round, row.Kind)
		}
		if err := rounds[len(rounds)-1].add(row); err != nil {
			return nil, err
		}
	}
	return rounds, nil
}

func (r *Round) add(row JournalRow) error {
	if row.Kind == RowInput {
		r.Input = append(r.Input, row.N)
		return nil
	}
	if row.N < 0 || row.N >= int64(len(r.Results)) {
		return fmt.Errorf("reading round %d: a result of call %d of %d", row.Round, row.N, len(r.Results))
	}
	r.Results[row.N] = &chat.ToolResult{}
	if err := json.Unmarshal([]byte(row.Body), r.Results[row.N]); err != nil {
		return fmt.Errorf("reading the result of call %d in round %d: %w", row.N, row.Round, err)
	}
	return nil
}
