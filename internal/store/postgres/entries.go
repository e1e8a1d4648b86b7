package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
)

// Transcript entries travel to the database as one JSON text and are rows there.
const (
	entryColumns = `session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, at`
	entriesFrom  = `json_to_recordset`
	entriesAs    = ` AS e(i bigint, of text, run text, role text, content text, sender text, tokens bigint, reason text, command boolean)`
)

// entry is one row as JSON; the names are those of entriesAs.
type entry struct {
	I       int    `json:"i"`            // counts from 1
	Of      string `json:"of,omitempty"` // run that writes it, where several write at once
	Run     string `json:"run"`
	Role    string `json:"role"`
	Content string `json:"content"`
	Sender  string `json:"sender"`
	Tokens  int    `json:"tokens"`
	Reason  string `json:"reason"`
	Command bool   `json:"command"`
}

// encodeEntries makes the JSON text of entries; of is the run that writes them, "" where the statement has only one writer.
func encodeEntries(list []chat.TranscriptEntry, of string) (string, error) {
	rows := make([]entry, 0, len(list))
	for i, e := range list {
		sender := ""
		if e.Sender != (chat.Sender{}) {
			text, err := encode(e.Sender)
			if err != nil {
				return "", err
			}
			sender = text
		}
		rows = append(rows, entry{
			I: i + 1, Of: of, Run: e.RunID, Role: e.Role, Content: clean(e.Text), Sender: sender,
			Tokens: e.Tokens, Reason: clean(e.StopReason), Command: e.Command,
		})
	}
	return encode(rows)
}

// numbered gives copies of the entries the numbers up to last and their time.
func numbered(list []chat.TranscriptEntry, last int64, at time.Time) []chat.TranscriptEntry {
	out := make([]chat.TranscriptEntry, len(list))
	for i, e := range list {
		e.Seq, e.At = last-int64(len(list)-1-i), at
		e.Text, e.StopReason = clean(e.Text), clean(e.StopReason)
		out[i] = e
	}
	return out
}

// scanText reads a single text column.
func scanText(row pgx.CollectableRow) (string, error) {
	var text string
	err := row.Scan(&text)
	return text, err
}
