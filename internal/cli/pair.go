package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"laneway/internal/wire"
)

type pairCmd struct {
	List    pairList    `cmd:"" help:"Show open requests for access to a bot, and the people with access."`
	Approve pairApprove `cmd:"" help:"Grant a person access, by the code that they received or by the request."`
	Dismiss pairDismiss `cmd:"" help:"Refuse a request."`
	Revoke  pairRevoke  `cmd:"" help:"Revoke the access of a person."`
}

type pairList struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

type pairApprove struct {
	clientFlags
	Code  string `arg:"" help:"The code that the person received, or the request as laneway pair list shows it."`
	Quiet bool   `help:"Send the person no message."`
}

type pairDismiss struct {
	clientFlags
	Request string `arg:"" help:"The request, as laneway pair list shows it."`
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
	rows := [][]string{{"PERSON", "NAME", "BOT", "STATE", "SINCE", "BY", "REQUEST"}}
	now := env.now()
	for _, p := range list.Requests {
		state := "asks, for another " + short(instant(p.ExpiresAt).Sub(now))
		row := pairRow(wire.PairingGrant{SenderID: p.SenderID, SenderLabel: p.SenderLabel, Channel: p.Channel, AccountID: p.AccountID}, state, ago(now, instant(p.CreatedAt).UnixMilli()))
		rows = append(rows, append(row, env.cell(p.RequestID, 40)))
	}
	for _, p := range list.Granted {
		rows = append(rows, append(pairRow(p, "let in", ago(now, instant(p.ApprovedAt).UnixMilli())), "-"))
	}
	return table(env.stdout, rows)
}

// instant parses a time of the protocol. An invalid one is the zero time.
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

// Run approves a person.
func (c *pairApprove) Run(ctx context.Context, env *environment) error {
	conn, err := c.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	notify := !c.Quiet
	params := wire.PairingApproveParams{Code: c.Code, Notify: &notify}
	if request, err := findRequest(ctx, conn, c.Code); err != nil {
		return err
	} else if request != nil {
		params.Code, params.RequestID = "", request.RequestID
	}
	var done wire.PairingApproveResult
	if err := conn.Call(ctx, "channels.pairing.approve", params, &done); err != nil {
		return err
	}
	notified := "and is told so"
	if done.Notification != "sent" {
		notified = "and is not told"
	}
	_, err = fmt.Fprintf(env.stdout, "%s may talk to the bot %s\n", oneLine(done.SenderID), notified)
	return err
}

// findRequest returns the request with an id, or nil: the argument is then a code.
func findRequest(ctx context.Context, conn gatewayConn, id string) (*wire.PairingRequest, error) {
	var list wire.PairingListResult
	if err := conn.Call(ctx, "channels.pairing.list", map[string]any{}, &list); err != nil {
		return nil, err
	}
	for _, r := range list.Requests {
		if r.RequestID == id {
			return &r, nil
		}
	}
	return nil, nil //nolint:nilnil // not every word is a request
}

// Help is the example of the command.
func (*pairDismiss) Help() string {
	return "Example:\n\n    laneway pair dismiss 01a2040c-57f3-74f5-8425-9f8d9b3d0e2c"
}

// Run refuses a request.
func (c *pairDismiss) Run(ctx context.Context, env *environment) error {
	conn, err := c.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	request, err := findRequest(ctx, conn, c.Request)
	if err != nil {
		return err
	}
	if request == nil {
		return fmt.Errorf("there is no request %s; see laneway pair list", oneLine(c.Request))
	}
	var done wire.PairingDismissResult
	params := wire.PairingDismissParams{Channel: request.Channel, AccountID: request.AccountID, RequestID: request.RequestID}
	if err := conn.Call(ctx, "channels.pairing.dismiss", params, &done); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "the request of %s is dismissed\n", oneLine(done.SenderID))
	return err
}

// Run revokes access.
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
