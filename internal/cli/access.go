package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/app"
	"laneway/internal/chat"
	"laneway/internal/wire"
)

type tokenCmd struct {
	Create tokenCreate `cmd:"" help:"Create a token; its secret is shown once."`
	List   tokenList   `cmd:"" help:"List tokens, without their secrets."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a token; its connections close within seconds."`
}

type tokenFlags struct {
	configFlags
	JSON bool `help:"Print JSON."`
}

type tokenCreate struct {
	tokenFlags
	Name    string        `arg:"" help:"Name of the token, which owns what it creates."`
	Scope   []string      `help:"What it may do: read, write or admin; write includes read, admin includes both." default:"read" placeholder:"SCOPE" complete:"read,write,admin"`
	Visible string        `help:"What it sees: all, or own (only what it created)." default:"all" enum:"all,own" placeholder:"all|own"`
	Expires time.Duration `help:"Lifetime, such as 720h; 0 = until it is revoked." default:"0"`
}

type tokenList struct{ tokenFlags }

type tokenRevoke struct {
	tokenFlags
	Name string `arg:"" help:"Name of the token."`
}

// tokenReport is a token as the commands print it.
type tokenReport struct {
	Name        string   `json:"name"`
	Scopes      []string `json:"scopes"`
	Visible     string   `json:"visible"`
	CreatedAtMs int64    `json:"createdAtMs"`
	// ExpiresAtMs is absent when it never expires.
	ExpiresAtMs int64 `json:"expiresAtMs,omitempty"`
	Expired     bool  `json:"expired"`
	// Token is the secret; set only for a new token.
	Token string `json:"token,omitempty"`
}

func reportOf(t app.Token, now time.Time) tokenReport {
	r := tokenReport{Name: t.Name, Scopes: t.Scopes, Visible: t.Visible, CreatedAtMs: t.CreatedAt.UnixMilli()}
	if !t.ExpiresAt.IsZero() {
		r.ExpiresAtMs, r.Expired = t.ExpiresAt.UnixMilli(), !now.Before(t.ExpiresAt)
	}
	return r
}

// here returns who changes a token, for the audit log: a person with access to the store is the
// operator.
func here() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return "user " + strconv.Itoa(os.Getuid()) + " on " + host
}

// Run makes a token.
func (c *tokenCreate) Run(ctx context.Context, env *environment) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	made, secret, err := app.CreateToken(ctx, loaded.Config, app.TokenRequest{
		Name: c.Name, Scopes: c.Scope, Visible: c.Visible, ExpiresIn: c.Expires,
	}, here())
	if err != nil {
		return fmt.Errorf("making the token: %w", err)
	}
	if c.JSON {
		r := reportOf(made, env.now())
		r.Token = secret.Reveal()
		return printJSON(env.stdout, r)
	}
	env.note(fmt.Sprintf("token %s may %s and sees %s; this is its secret, shown only now", made.Name, scopeWords(made.Scopes), sees(made.Visible)))
	return env.printLine(secret.Reveal())
}

// scopeWords returns scopes without their common prefix.
func scopeWords(scopes []string) string {
	return strings.ReplaceAll(strings.Join(scopes, ", "), "operator.", "")
}

func sees(visible string) string {
	if visible == "own" {
		return "only what it makes"
	}
	return "everything"
}

// Run lists the tokens.
func (c *tokenList) Run(ctx context.Context, env *environment) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	list, err := app.ListTokens(ctx, loaded.Config)
	if err != nil {
		return fmt.Errorf("reading the tokens: %w", err)
	}
	reports := make([]tokenReport, 0, len(list))
	rows := [][]string{{"NAME", "SCOPES", "SEES", "MADE", "EXPIRES"}}
	for _, t := range list {
		r := reportOf(t, env.now())
		reports = append(reports, r)
		rows = append(rows, []string{cell(r.Name, 64), scopeWords(r.Scopes), r.Visible, ago(env.now(), r.CreatedAtMs), expiry(t, env.now())})
	}
	switch {
	case c.JSON:
		return printJSON(env.stdout, map[string]any{"tokens": reports})
	case len(list) == 0:
		return env.printLine("no named tokens; make one with laneway token create NAME")
	default:
		return env.table(rows)
	}
}

func expiry(t app.Token, now time.Time) string {
	switch {
	case t.ExpiresAt.IsZero():
		return "never"
	case !now.Before(t.ExpiresAt):
		return "expired"
	default:
		return "in " + short(t.ExpiresAt.Sub(now))
	}
}

// Run revokes a token.
func (c *tokenRevoke) Run(ctx context.Context, env *environment) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	err = app.RevokeToken(ctx, loaded.Config, c.Name, here())
	if errors.Is(err, chat.ErrNotFound) {
		var names []string
		list, lerr := app.ListTokens(ctx, loaded.Config)
		for _, t := range list {
			names = append(names, t.Name)
		}
		return errors.Join(missing("token", c.Name, "laneway token list", names), lerr)
	}
	if err != nil {
		return fmt.Errorf("revoking the token: %w", err)
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"name": c.Name, "revoked": true})
	}
	return env.print("token %s is revoked; its connections end within seconds\n", c.Name)
}

type pairCmd struct {
	List    pairList    `cmd:"" help:"List approved users and open requests."`
	Approve pairApprove `cmd:"" help:"Approve a user, by pairing code or request."`
	Dismiss pairDismiss `cmd:"" help:"Dismiss a request."`
	Revoke  pairRevoke  `cmd:"" help:"Revoke a user's access."`
}

type pairList struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

type pairApprove struct {
	clientFlags
	Code  string `arg:"" help:"The pairing code, or the request from laneway pair list."`
	Quiet bool   `help:"Don't notify the user."`
}

type pairDismiss struct {
	clientFlags
	Request string `arg:"" help:"The request, from laneway pair list."`
}

type pairRevoke struct {
	clientFlags
	ID      string `arg:"" help:"The user's number, from laneway pair list."`
	Account string `help:"Only for this bot account." placeholder:"NAME"`
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
		rows = append(rows, append(pairRow(p, "approved", ago(now, instant(p.ApprovedAt).UnixMilli())), "-"))
	}
	return env.table(rows)
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
	by := cmp.Or(p.ApprovedBy, "-")
	return []string{cell(p.SenderID, 24), cell(p.SenderLabel, 40), cell(p.Channel+" "+p.AccountID, 40), state, since, cell(by, 40)}
}

// Run approves a person.
func (c *pairApprove) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	notify := !c.Quiet
	params := wire.PairingApproveParams{Code: c.Code, Notify: &notify}
	open, err := openRequests(ctx, conn)
	if err != nil {
		return err
	}
	if request := findRequest(open, c.Code); request != nil {
		params.Code, params.RequestID = "", request.RequestID
	}
	var done wire.PairingApproveResult
	if err := conn.Call(ctx, "channels.pairing.approve", params, &done); err != nil {
		return err
	}
	user := oneLine(done.SenderID)
	if request := findRequest(open, done.RequestID); request != nil && request.SenderLabel != "" {
		user = oneLine(request.SenderLabel) + " (" + user + ")"
	}
	notified := "has been notified"
	if done.Notification != "sent" {
		notified = "has not been notified"
	}
	return env.print("%s can now use the bot and %s\n", user, notified)
}

func openRequests(ctx context.Context, conn gatewayConn) ([]wire.PairingRequest, error) {
	var list wire.PairingListResult
	err := conn.Call(ctx, "channels.pairing.list", map[string]any{}, &list)
	return list.Requests, err
}

// findRequest returns the request with an id, or nil.
func findRequest(open []wire.PairingRequest, id string) *wire.PairingRequest {
	i := slices.IndexFunc(open, func(r wire.PairingRequest) bool { return r.RequestID == id })
	if i < 0 {
		return nil
	}
	return &open[i]
}

// Run refuses a request.
func (c *pairDismiss) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	open, err := openRequests(ctx, conn)
	if err != nil {
		return err
	}
	request := findRequest(open, c.Request)
	if request == nil {
		return missing("request", c.Request, "laneway pair list", nil)
	}
	var done wire.PairingDismissResult
	params := wire.PairingDismissParams{Channel: request.Channel, AccountID: request.AccountID, RequestID: request.RequestID}
	if err := conn.Call(ctx, "channels.pairing.dismiss", params, &done); err != nil {
		return err
	}
	return env.print("the request of %s is dismissed\n", oneLine(done.SenderID))
}

// Run revokes access.
func (c *pairRevoke) Run(ctx context.Context, env *environment) error {
	if _, err := strconv.ParseUint(c.ID, 10, 64); err != nil {
		return c.byName(ctx, env)
	}
	params := map[string]any{"senderId": c.ID}
	if c.Account != "" {
		params["accountId"] = c.Account
	}
	var done wire.PairingRevokeResult
	if err := c.call(ctx, env, "channels.pairing.revoke", params, &done); err != nil {
		return err
	}
	return env.print("%s may not talk to the bot any more\n", oneLine(c.ID))
}

// byName is the error for words that are not a user's number.
func (c *pairRevoke) byName(ctx context.Context, env *environment) error {
	var list wire.PairingListResult
	if err := c.call(ctx, env, "channels.pairing.list", map[string]any{}, &list); err != nil {
		return err
	}
	for _, p := range list.Granted {
		if strings.EqualFold(p.SenderLabel, c.ID) {
			return usageError(fmt.Sprintf("users are revoked by their number; for %s, run laneway pair revoke %s", oneLine(p.SenderLabel), oneLine(p.SenderID)))
		}
	}
	return usageError(oneLine(c.ID) + " is not the number of a user; see laneway pair list")
}
