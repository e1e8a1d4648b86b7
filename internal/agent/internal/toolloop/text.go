package toolloop

import "laneway/internal/agent"

// between separates the text of two rounds.
const between = "\n\n"

// Text collects the text of a turn over its rounds. It belongs to the goroutine of Run.
type Text struct {
	emit   func(agent.Event)
	answer *agent.Answer
	start  int // where the text of the round begins
	gap    bool
}

// NewText makes an empty Text of at most limit bytes; limit <= 0 means [agent.DefaultMaxAnswer].
func NewText(limit int, emit func(agent.Event)) *Text {
	return &Text{emit: emit, answer: agent.NewAnswer(limit, emit)}
}

// nextRound starts the text of the next round.
func (t *Text) nextRound() {
	t.start = len(t.answer.Text())
	t.gap = t.start > 0
}

// Append adds text of the round, see [agent.Answer.Append].
func (t *Text) Append(text string) error {
	if text == "" {
		return nil
	}
	if t.gap {
		t.gap = false
		if err := t.answer.Append(between); err != nil {
			return err
		}
		t.start += len(between)
	}
	return t.answer.Append(text)
}

// Begun reports whether anything of the round was emitted; after that its request must not be repeated.
func (t *Text) Begun() bool { return len(t.answer.Text()) > t.start }

// Round returns the text of the round.
func (t *Text) Round() string { return t.answer.Text()[t.start:] }

// Whole returns the text of the turn.
func (t *Text) Whole() string { return t.answer.Text() }
