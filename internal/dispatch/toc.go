package dispatch

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
)

// tocShown is how many summaries /toc shows.
const tocShown = 7

// Toc reads summaries of conversations.
func (d *Dispatcher) Toc(ctx context.Context, q store.TocQuery) ([]store.TocNode, error) {
	return d.store.Toc(ctx, q)
}

// Toc implements /toc. When others can read the reply, it lists only days of that session, not the person's other sessions.
func (a actions) Toc(ctx context.Context, c command.Call, level string) ([]command.TocLine, error) {
	q := store.TocQuery{Level: store.TocLevel(level), Visible: c.Principal, Limit: tocShown}
	if c.Audience.Shared() {
		if q.Level != store.TocDay {
			return nil, chat.Errorf(chat.CodeInvalid, "in a group there are only summaries of its days; say /toc")
		}
		q.Visible, q.Session = "", c.Session
	}
	list, err := a.d.store.Toc(ctx, q)
	if err != nil {
		return nil, err
	}
	lines := make([]command.TocLine, 0, len(list))
	for _, n := range list {
		line := command.TocLine{Period: n.Period, Text: n.Text}
		if !n.Session.IsZero() && n.Session != c.Session {
			line.Session = n.Session.String()
		}
		lines = append(lines, line)
	}
	return lines, nil
}
