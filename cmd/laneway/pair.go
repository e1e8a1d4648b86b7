package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"laneway/internal/wire"
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

// Run lists people.
func (c *pairList) Run(ctx context.Context, env *environment) error {
	var raw json.RawMessage
	if err := c.call(ctx, env, "channels.pairing.list", map[string]any{"extended": true}, &raw); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var list wire.PairingListResult
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("the list cannot be read: %w", err)
	}
	rows := [][]string{{"PERSON", "NAME", "BOT", "STATE", "SINCE", "BY"}}
	now := env.now()
	for _, p := range list.Requests {
		state := "asks, for another " + short(instant(p.ExpiresAt).Sub(now))
		rows = append(rows, pairRow(wire.PairingGrant{SenderID: p.SenderID, SenderLabel: p.SenderLabel, Channel: p.Channel, AccountID: p.AccountID}, state, ago(now, instant(p.CreatedAt).UnixMilli())))
	}
	for _, p := range list.Granted {
		rows = append(rows, pairRow(p, "let in", ago(now, instant(p.ApprovedAt).UnixMilli())))
	}
	return table(env.stdout, rows)
}

// instant reads a time of the wire. One that cannot be read is the zero time.
func instant(iso string) time.Time {
	at, err := time.Parse(time.RFC3339, iso)
	if err != nil {
		return time.Time{}
	}
	return at
}

func pairRow(p wire.PairingGrant, state, since string) []string {
	by := p.ApprovedBy
	if by == "" {
		by = "-"
	}
	return []string{cell(p.SenderID, 24), cell(p.SenderLabel, 40), cell(p.Channel+" "+p.AccountID, 40), state, since, cell(by, 40)}
}

// Run lets a person in.
func (c *pairApprove) Run(ctx context.Context, env *environment) error {
	var done wire.PairingApproveResult
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
	var done wire.PairingRevokeResult
	if err := c.call(ctx, env, "channels.pairing.revoke", params, &done); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "%s may not talk to the bot any more\n", oneLine(c.ID))
	return err
}
