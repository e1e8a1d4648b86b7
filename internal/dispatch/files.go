package dispatch

import (
	"cmp"
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// firstFile is the number of the first file among the outgoing rows of a run: the text is 0, a notice 1.
const firstFile = 2

// paragraphs appends a paragraph to an answer.
func paragraphs(text, more string) string {
	switch {
	case more == "":
		return text
	case strings.TrimSpace(text) == "":
		return text + more
	case strings.HasSuffix(text, "\n"):
		return text + "\n" + more
	}
	return text + "\n\n" + more
}

// reply returns the text without the lines that represent files.
func (e *ending) reply() string { return strings.TrimSuffix(e.text, e.lines) }

// replies returns the rows of an answer: its text, then each file in its own row, so that a process that ends in between repeats at most
// one.
func replies(lead store.Waiting, runID string, end ending) []store.Outgoing {
	row := store.Outgoing{ID: newID(), RunID: runID, Session: lead.Session, Principal: lead.Principal, Target: lead.Content.Options.ReplyTo, Kind: store.KindReply, Text: cmp.Or(end.empty, end.reply()), Count: 1}
	var rows []store.Outgoing
	if strings.TrimSpace(row.Text) != "" || len(end.files) == 0 {
		rows = append(rows, row)
	}
	for i, f := range end.files {
		row.ID, row.N, row.Text, row.File = newID(), firstFile+i, f.Line(), &f
		rows = append(rows, row)
	}
	return rows
}

// outputOf returns a function that creates the directory for the files of a turn on demand.
func (ts *turns) outputOf(t *turn) func() (string, error) {
	if ts.cfg.Files == nil {
		return nil
	}
	return func() (string, error) {
		t.outputMu.Lock()
		defer t.outputMu.Unlock()
		if err := ts.openOutput(t); err != nil {
			return "", err
		}
		return t.output.Path(), nil
	}
}

// openOutput creates the directory of a turn unless it exists. The caller holds its lock.
func (ts *turns) openOutput(t *turn) error {
	if t.output != nil {
		return nil
	}
	made, err := ts.cfg.Files.NewTurn()
	t.output = made
	return err
}

// endOutput removes the directory of a turn that has returned.
func (ts *turns) endOutput(ctx context.Context, t *turn) {
	t.outputMu.Lock()
	defer t.outputMu.Unlock()
	t.outputEnded = true
	if t.output == nil {
		return
	}
	if err := t.output.Remove(); err != nil {
		ts.log.WarnContext(ctx, "the directory for the files of a turn stays until the next clean-up", "run_id", t.run.RunID, "err", err)
	}
}

// takeFiles stores the files of an answer before the answer is committed: a file is on the disk when the row that names it is written. It
// appends to the text a sentence about omitted files, and one line for each file for readers of plain text, such as later turns.
func (ts *turns) takeFiles(ctx context.Context, t *turn, end *ending, made []chat.Attachment) {
	t.outputMu.Lock()
	defer t.outputMu.Unlock()
	if end.outcome != chat.OutcomeAnswered || len(made) == 0 || t.output == nil {
		return
	}
	before := end.text
	taken, left, err := t.output.Take(made)
	if err != nil {
		ts.log.ErrorContext(ctx, "the files of an answer could not be kept", "run_id", t.run.RunID, "err", err)
		taken, left = nil, "The files of this answer could not be kept; the operator can find out why."
	}
	if t.rows[len(t.rows)-1].Content.Options.ReplyTo.IsZero() { // no channel sends the files: clients fetch them
		taken, left = ts.keepFiles(ctx, t, taken, left)
	} else {
		end.files = taken
	}
	end.text = paragraphs(end.text, left)
	reply := end.text
	lines := make([]string, 0, len(taken))
	for _, f := range taken {
		lines = append(lines, f.Line())
	}
	end.text = paragraphs(reply, strings.Join(lines, "\n"))
	end.lines = strings.TrimPrefix(end.text, reply)
	t.run.Grow(strings.TrimPrefix(end.text, before)) // subscribers see the text of the transcript; a preview in a chat shows no lines for files
}

// keepFiles keeps the files of an answer for the owner of the session. A turn that is repeated after a
// crash makes them again; retention removes the first ones.
func (ts *turns) keepFiles(ctx context.Context, t *turn, taken []chat.Attachment, left string) ([]chat.Attachment, string) {
	kept := make([]chat.Attachment, 0, len(taken))
	for _, f := range taken {
		k, err := ts.cfg.Files.Keep(t.started.Principal, f, ts.cfg.KeptFiles)
		if err != nil {
			ts.log.ErrorContext(ctx, "a file of an answer could not be kept", "run_id", t.run.RunID, "err", err)
		}
		if k.ID == "" {
			left = "The files of this answer could not be kept; the operator can find out why."
			ts.dropFiles(ctx, t, []chat.Attachment{f})
			continue
		}
		kept = append(kept, k)
	}
	return kept, left
}

// dropFiles deletes files of an answer that nothing names.
func (ts *turns) dropFiles(ctx context.Context, t *turn, taken []chat.Attachment) {
	if err := ts.cfg.Files.Drop(taken); err != nil {
		ts.log.WarnContext(ctx, "files of an answer remain until retention removes them", "run_id", t.run.RunID, "err", err)
	}
}
