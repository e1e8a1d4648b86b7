package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

type pairCmd struct {
	List    pairList    `cmd:"" help:"Show who asks to be let in to a bot, and who was."`
	Approve pairApprove `cmd:"" help:"Let the person in who was shown a code."`
	Revoke  pairRevoke  `cmd:"" help:"Take back that a person may talk."`
}

type pairList struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

type pairApprove struct {
	clientFlags
	Code  string `arg:"" help:"The code that the person was shown."`
	Quiet bool   `help:"Do not tell the person."`
}

type pairRevoke struct {
	clientFlags
	ID      string `arg:"" help:"The person's number, as laneway pair list shows it."`
	Account string `help:"Only for this account of a bot." placeholder:"NAME"`
}

// Help is the example of the command.
func (*pairList) Help() string { return "Example:\n\n    laneway pair list --json" }

// Help is the example of the command.
func (*pairApprove) Help() string {
	return "The code is good for one hour and for one use; it lets one person in, in one chat.\n\nExample:\n\n    laneway pair approve K7QF2M3A"
}

// Help is the example of the command.
func (*pairRevoke) Help() string { return "Example:\n\n    laneway pair revoke 123456789" }

// pairPerson is a person of the list.
type pairPerson struct {
	Channel     string    `json:"channel"`
	AccountID   string    `json:"accountId"`
	SenderID    string    `json:"senderId"`
	SenderLabel string    `json:"senderLabel"`
	CreatedAt   time.Time `json:"createdAt"`
	ExpiresAt   time.Time `json:"expiresAt"`
	ApprovedBy  string    `json:"approvedBy"`
	ApprovedAt  time.Time `json:"approvedAt"`
}

// Run lists people.
func (c *pairList) Run(ctx context.Context, env *environment) error {
	var raw json.RawMessage
	if err := c.call(ctx, env, "channels.pairing.list", map[string]any{"extended": true}, &raw); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var list struct {
		Requests []pairPerson `json:"requests"`
		Granted  []pairPerson `json:"granted"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("the list cannot be read: %w", err)
	}
	rows := [][]string{{"PERSON", "NAME", "BOT", "STATE", "SINCE", "BY"}}
	now := env.now()
	for _, p := range list.Requests {
		rows = append(rows, p.row("asks, for another "+short(p.ExpiresAt.Sub(now)), ago(now, p.CreatedAt.UnixMilli())))
	}
	for _, p := range list.Granted {
		rows = append(rows, p.row("let in", ago(now, p.ApprovedAt.UnixMilli())))
	}
	return table(env.stdout, rows)
}

func (p pairPerson) row(state, since string) []string {
	by := p.ApprovedBy
	if by == "" {
		by = "-"
	}
	return []string{cell(p.SenderID, 24), cell(p.SenderLabel, 40), cell(p.Channel+" "+p.AccountID, 40), state, since, cell(by, 40)}
}

// Run lets a person in.
func (c *pairApprove) Run(ctx context.Context, env *environment) error {
	var done struct {
		SenderID     string `json:"senderId"`
		Notification string `json:"notification"`
	}
	if err := c.call(ctx, env, "channels.pairing.approve", map[string]any{"code": c.Code, "notify": !c.Quiet}, &done); err != nil {
		return err
	}
	notified := "and is told so"
	if done.Notification != "sent" {
		notified = "and is not told"
	}
	_, err := fmt.Fprintf(env.stdout, "%s may talk to the bot %s\n", oneLine(done.SenderID), notified)
	return err
}

// Run takes a right back.
func (c *pairRevoke) Run(ctx context.Context, env *environment) error {
	params := map[string]any{"senderId": c.ID}
	if c.Account != "" {
		params["accountId"] = c.Account
	}
	var done struct {
		Revoked int `json:"revoked"`
	}
	if err := c.call(ctx, env, "channels.pairing.revoke", params, &done); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "%s may not talk to the bot any more\n", oneLine(c.ID))
	return err
}
