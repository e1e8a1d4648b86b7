package postgres

import (
	"laneway/internal/store"
)

// Outgoing messages travel to the database as one JSON text and are rows there.
const (
	outgoingColumns = `id, run_id, n, session_key, channel, chat_id, thread, kind, payload, text_many, count, coalesce, epoch,
		next_at, expires_at, created_at, choice, file, principal`
	outgoingFrom = `json_to_recordset`
	outgoingAsN  = ` AS w(channel text, chat text)`
	outgoingAs   = ` AS o(i int, id text, run text, n bigint, session text, channel text, chat text, thread text, kind text, payload text,
		many text, count bigint, word text, epoch bigint, delay bigint, expires bigint, choice text, file text, principal text)`
	partsSQL = `COALESCE(o.choice, ''), COALESCE(o.file, ''), o.principal`
)

// outgoing is one row as JSON; the names are those of outgoingAs.
type outgoing struct {
	I       int     `json:"i"` // keeps the order
	ID      string  `json:"id"`
	Run     *string `json:"run"`
	N       int     `json:"n"`
	Session string  `json:"session"`
	Channel string  `json:"channel"`
	Chat    string  `json:"chat"`
	Thread  string  `json:"thread"`
	Kind    string  `json:"kind"`
	Payload string  `json:"payload"`
	Many    string  `json:"many"`
	Count   int     `json:"count"`
	Word    string  `json:"word"`
	Epoch   int64   `json:"epoch"`
	Delay   int64   `json:"delay"`
	Expires *int64  `json:"expires"`
	Choice  string  `json:"choice,omitempty"` // itself JSON
	File    string  `json:"file,omitempty"`   // the same
	Owner   string  `json:"principal"`
}

func encodeOutgoing(list []store.Outgoing) (string, error) {
	rows := make([]outgoing, 0, len(list))
	for i, o := range list {
		id := o.ID
		if id == "" {
			made, err := newID()
			if err != nil {
				return "", err
			}
			id = made
		}
		row := outgoing{
			I: i, ID: id, N: o.N, Session: o.Session.String(), Channel: o.Target.Channel, Chat: o.Target.ChatID, Thread: o.Target.Thread,
			Kind: o.Kind, Payload: clean(o.Text), Many: clean(o.TextMany), Count: max(o.Count, 1), Word: o.Coalesce,
			Epoch: o.Epoch, Delay: o.Delay.Milliseconds(), Owner: o.Principal,
		}
		if o.RunID != "" {
			row.Run = &o.RunID
		}
		if !o.ExpiresAt.IsZero() {
			at := o.ExpiresAt.UnixMilli()
			row.Expires = &at
		}
		var err error
		if row.Choice, err = encodePart(o.Choice); err != nil {
			return "", err
		}
		if row.File, err = encodePart(o.File); err != nil {
			return "", err
		}
		rows = append(rows, row)
	}
	return encode(rows)
}

// encodePart is the column of a part that a row may have, "" = none.
func encodePart[T any](part *T) (string, error) {
	if part == nil {
		return "", nil
	}
	text, err := encode(part)
	return clean(text), err
}
