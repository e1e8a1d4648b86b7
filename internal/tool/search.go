package tool

import (
	"context"
	"fmt"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/words"
)

// hitsShown is how many messages the tool history_search returns at once.
const hitsShown = 10

// nodesShown is how many summaries the tool history_search returns at once.
const nodesShown = 10

func (t *Table) historySearch() Tool {
	return Tool{
		Name: "history_search", Scope: chat.ScopeWrite, ReadOnly: true, Idempotent: true, Askable: true, Foreign: always, // its results may contain external text
		Beyond: func(turn Turn, args []byte) bool {
			a, err := read[searchArgs](args)
			return err == nil && (a.Everywhere || turn.elsewhere(a.Session))
		},
		Check: func(ctx context.Context, turn Turn, _ string, args []byte) error {
			a, err := read[searchArgs](args)
			if err == nil && a.Contents == "" {
				_, err = t.searchQuery(ctx, turn.alone(), a)
			} else if err == nil {
				_, err = t.tocQuery(ctx, turn.alone(), a)
			}
			return err
		},
		Description: "Finds earlier messages that have all of the given words, the newest first: in all sessions of the person, in a group in this session only. " +
			"A word finds longer words that begin with it. There are no synonyms: try other words when nothing is found. With contents instead of query it shows " +
			"summaries of what was said, by day, week or month: go from a month to its weeks and days to find when something was said.",
		Schema: `{"type":"object","additionalProperties":false,"properties":{
			"query":{"type":"string","description":"The words, at most 16."},
			"contents":{"type":"string","enum":["day","week","month"],"description":"Summaries instead of messages; in a group only of its days."},
			"period":{"type":"string","description":"With contents: only up to this one, such as 2026-03-14, 2026-W11 or 2026-03, to go further back."},
			"session":{"type":"string","description":"Key of a session of the person, to search in that one only."},
			"before":{"type":"string","description":"Only messages up to this time (RFC 3339), to go further back."}}}`,
		Run: t.searchHistory,
	}
}

// searchArgs are the arguments of the tool history_search.
type searchArgs struct {
	Query   string `json:"query"`
	Session string `json:"session"`
	Before  string `json:"before"`

	Contents string `json:"contents"`
	Period   string `json:"period"`

	Everywhere bool `json:"everywhere"`
}

func (t *Table) searchHistory(ctx context.Context, turn Turn, _ string, args []byte) (string, error) {
	a, err := read[searchArgs](args)
	if err != nil {
		return "", err
	}
	if a.Contents != "" {
		return t.contents(ctx, turn, a)
	}
	q, err := t.searchQuery(ctx, turn, a)
	if err != nil {
		return "", err
	}
	found, err := t.deps.Sessions.Search(ctx, q)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, h := range found.Hits {
		fmt.Fprintf(&out, "%s %s, %s: %s\n", shown(h.Entry.At), h.Session, h.Entry.Role, h.Entry.Text)
	}
	switch {
	case found.More:
		fmt.Fprintf(&out, "There may be older ones; search again with before %s.\n", found.Back.UTC().Format(time.RFC3339Nano))
	case len(found.Hits) == 0:
		return "No message has these words.", nil
	}
	return out.String(), nil
}

// searchQuery returns the query, restricted to what the turn may search.
func (t *Table) searchQuery(ctx context.Context, turn Turn, a searchArgs) (store.SearchQuery, error) {
	q := store.SearchQuery{Visible: turn.Owner, Limit: hitsShown}
	var err error
	if q.Words, err = words.Parse(a.Query); err != nil {
		return q, chat.Errorf(chat.CodeInvalid, "%s", err)
	}
	if a.Before != "" {
		if q.Until, err = time.Parse(time.RFC3339Nano, a.Before); err != nil {
			return q, chat.Errorf(chat.CodeInvalid, "before is not a time like 2026-03-14T15:00:00Z")
		}
	}
	switch {
	case turn.Audience.Shared():
		q.Session, q.Visible = turn.here()
	case a.Session != "":
		status, err := t.own(ctx, turn, a.Session)
		if err != nil {
			return q, err
		}
		q.Session = status.Key
	}
	return q, nil
}

// contents returns summaries of conversations, the newest first.
func (t *Table) contents(ctx context.Context, turn Turn, a searchArgs) (string, error) {
	q, err := t.tocQuery(ctx, turn, a)
	if err != nil {
		return "", err
	}
	list, err := t.deps.Sessions.Toc(ctx, q)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "There are no summaries.", nil
	}
	var out strings.Builder
	for _, n := range list {
		where := ""
		if !n.Session.IsZero() {
			where = " " + n.Session.String()
		}
		fmt.Fprintf(&out, "%s%s: %s\n", n.Period, where, n.Text)
	}
	return out.String(), nil
}

// tocQuery returns the query, restricted to the summaries that the turn may read.
func (t *Table) tocQuery(ctx context.Context, turn Turn, a searchArgs) (store.TocQuery, error) {
	q := store.TocQuery{Level: store.TocLevel(a.Contents), Visible: turn.Owner, To: a.Period, Limit: nodesShown}
	switch {
	case a.Query != "" || a.Before != "":
		return q, chat.Errorf(chat.CodeInvalid, "contents goes with period and session only; leave out query and before")
	case turn.Audience.Shared() && q.Level != store.TocDay:
		return q, turn.notHere("a week or month")
	case turn.Audience.Shared():
		q.Session, q.Visible = turn.here()
	case a.Session != "" && q.Level != store.TocDay:
		return q, chat.Errorf(chat.CodeInvalid, "only days have a summary for each session; leave out session")
	case a.Session != "":
		status, err := t.own(ctx, turn, a.Session)
		if err != nil {
			return q, err
		}
		q.Session = status.Key
	}
	return q, nil
}
