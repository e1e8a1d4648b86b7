package usage

import (
	"context"
	"time"
)

// Report is the usage of a day so far.
type Report struct {
	Day      string
	Zone     *time.Location
	Resets   time.Time // when the next day begins
	Currency string
	Today    Counted
	// Budgets of the day that the reader may see, and the limits of turns and jobs, without usage.
	Budgets []State
}

// Report returns the report of today for a principal: its own usage and budget if own is set, otherwise those of all principals.
func (m *Meter) Report(ctx context.Context, principal string, own bool) (Report, error) {
	out := Report{Day: m.Today(), Zone: m.cfg.Zone, Resets: m.tomorrow(), Currency: m.cfg.Budgets.Currency}
	states, err := m.States(ctx, principal, "")
	if err != nil {
		return out, err
	}
	for _, s := range states {
		if !own || s.Kind == KindPrincipal {
			out.Budgets = append(out.Budgets, s)
		}
	}
	for _, kind := range []Kind{KindTurn, KindJob} {
		if limit := m.cfg.Budgets.Of(kind); !limit.IsZero() {
			out.Budgets = append(out.Budgets, State{Scope: Scope{Kind: kind}, Limit: limit, Currency: out.Currency})
		}
	}
	q := Query{From: out.Day, To: out.Day}
	if own {
		q.Principal = principal
	}
	rows, err := m.Rows(ctx, q)
	for _, r := range rows {
		out.Today.Add(r.Counted)
	}
	return out, err
}

// Lines returns the report for people: the usage, and each budget.
func (r Report) Lines() []string {
	line := "today: " + grouped(r.Today.Spent().Tokens) + " tokens"
	if r.Today.Cost > 0 {
		line += ", " + r.Today.Cost.String() + " " + r.Currency
	}
	if r.Today.Unreported >= time.Second {
		line += ", and " + r.Today.Unreported.Round(time.Second).String() + " of turns whose agents report none"
	}
	lines := []string{line}
	for _, s := range r.Budgets {
		switch s.Kind {
		case KindPrincipal:
			lines = append(lines, "your budget: "+s.figures())
		case KindDay:
			lines = append(lines, "budget of the day: "+s.figures())
		case KindTurn, KindJob:
		}
	}
	return lines
}
