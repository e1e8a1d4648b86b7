package gateway

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// PairingBackend is a [Backend] whose channels let in people whom an operator approved. Errors are *chat.Error values.
type PairingBackend interface {
	OpenPairings(ctx context.Context, channel string) ([]channel.Pairing, error)
	Grants(ctx context.Context, channel string) ([]channel.Grant, error)
	// ApprovePairing lets a person in and says whether they are told.
	ApprovePairing(ctx context.Context, ref channel.PairingRef, notify bool, by Caller) (p channel.Pairing, told bool, err error)
	DismissPairing(ctx context.Context, ref channel.PairingRef, by Caller) (channel.Pairing, error)
	RevokePairing(ctx context.Context, who channel.Peer, by Caller) (bool, error)
}

func pairingMethods() []*method {
	return []*method{
		define("channels.pairing.list", chat.ScopeAdmin, pairingList),
		define("channels.pairing.approve", chat.ScopeAdmin, pairingApprove, audited),
		define("channels.pairing.dismiss", chat.ScopeAdmin, pairingDismiss, audited),
		define("channels.pairing.revoke", chat.ScopeAdmin, pairingRevoke, audited),
	}
}

// pairing is the backend's part.
func (c *call) pairing() (PairingBackend, error) {
	b, ok := c.srv.backend.(PairingBackend)
	if !ok {
		return nil, chat.Errorf(chat.CodeInvalid, "this gateway has no channels")
	}
	return b, nil
}

type pairingListParams struct {
	Channel   string `json:"channel" p:"min=1,max=64"`
	AccountID string `json:"accountId" p:"min=1,max=64"`
	Extended  bool   `json:"extended"`
}

func (p *pairingListParams) wantsExtended() bool { return p.Extended }

// pairingAccount is a channel's account as the list names it. One that is not configured any more goes by the number in its name.
type pairingAccount struct{ kind, id, label string }

func (c *call) accountOf(name string) pairingAccount {
	kind, rest, _ := strings.Cut(name, ":")
	for _, ch := range c.srv.health.Load().status.Channels {
		if ch.Name == name {
			return pairingAccount{ch.ID, cmp.Or(ch.AccountID, defaultAccount), cmp.Or(ch.Label, ch.ID)}
		}
	}
	return pairingAccount{kind, cmp.Or(rest, defaultAccount), kind}
}

// pairingList has never a code in it: a code is what the person proves themselves with towards the operator.
func pairingList(ctx context.Context, c *call, p pairingListParams) (any, error) {
	b, err := c.pairing()
	if err != nil {
		return nil, err
	}
	open, err := b.OpenPairings(ctx, "")
	if err != nil {
		return nil, err
	}
	fits := func(a pairingAccount) bool {
		return (p.Channel == "" || p.Channel == a.kind) && (p.AccountID == "" || p.AccountID == a.id)
	}
	requests := []object{}
	for _, o := range open {
		a := c.accountOf(o.Channel)
		if !fits(a) {
			continue
		}
		requests = append(requests, object{
			"requestId": o.ID, "channel": a.kind, "channelLabel": a.label, "accountId": a.id, "senderId": strconv.FormatInt(o.UserID, 10),
			"senderLabel": cmp.Or(o.Name, strconv.FormatInt(o.UserID, 10)), "createdAt": isoTime(o.CreatedAt),
			"lastSeenAt": isoTime(o.CreatedAt), "expiresAt": isoTime(o.ExpiresAt), "notifySupported": true,
		})
	}
	out := object{
		"accounts": c.pairingAccounts(fits), "requests": requests, "commandOwnerConfigured": false,
		"limits": object{"pendingPerAccount": channel.MaxPairingsPerBot, "ttlMs": channel.PairingLife.Milliseconds()},
	}
	if !c.extended {
		return out, nil
	}
	granted, err := b.Grants(ctx, "")
	if err != nil {
		return nil, err
	}
	out["granted"] = c.grantViews(granted, fits)
	return out, nil
}

func (c *call) pairingAccounts(fits func(pairingAccount) bool) []object {
	accounts := []object{}
	for _, ch := range c.srv.health.Load().status.Channels {
		a := c.accountOf(ch.Name)
		if ch.ID == webChannel || !fits(a) {
			continue
		}
		accounts = append(accounts, object{"channel": a.kind, "channelLabel": a.label, "accountId": a.id, "notifySupported": true})
	}
	return accounts
}

func (c *call) grantViews(granted []channel.Grant, fits func(pairingAccount) bool) []object {
	views := []object{}
	for _, g := range granted {
		a := c.accountOf(g.Channel)
		if fits(a) {
			views = append(views, object{
				"channel": a.kind, "channelLabel": a.label, "accountId": a.id, "senderId": strconv.FormatInt(g.UserID, 10),
				"chatId": strconv.FormatInt(g.ChatID, 10), "senderLabel": cmp.Or(g.Name, strconv.FormatInt(g.UserID, 10)),
				"approvedBy": g.ApprovedBy, "approvedAt": isoTime(g.ApprovedAt),
			})
		}
	}
	return views
}

type pairingApproveParams struct {
	_ struct{} `also:"bootstrapCommandOwner"`

	Channel   string `json:"channel" p:"min=1,max=64"`
	AccountID string `json:"accountId" p:"min=1,max=64"`
	RequestID string `json:"requestId" p:"min=1,max=128"`
	Code      string `json:"code" p:"min=1,max=64"`
	Notify    *bool  `json:"notify"`
}

// pairingApprove takes the id from the list, or the code that the person read out.
func pairingApprove(ctx context.Context, c *call, p pairingApproveParams) (any, error) {
	b, err := c.pairing()
	if err != nil {
		return nil, err
	}
	if (p.RequestID == "") == (p.Code == "") {
		return nil, c.badParam("/requestId", "must be there, or code instead of it")
	}
	notify := p.Notify == nil || *p.Notify
	made, told, err := b.ApprovePairing(ctx, channel.PairingRef{ID: p.RequestID, Code: p.Code}, notify, c.caller())
	if err != nil {
		return nil, err
	}
	notification := "not-requested"
	switch {
	case told:
		notification = "sent"
	case notify:
		notification = "failed"
	}
	return object{
		"requestId": made.ID, "senderId": strconv.FormatInt(made.UserID, 10), "notification": notification, "commandOwnerBootstrap": "not-requested",
	}, nil
}

type pairingDismissParams struct {
	Channel   string `json:"channel" p:"required,min=1,max=64"`
	AccountID string `json:"accountId" p:"required,min=1,max=64"`
	RequestID string `json:"requestId" p:"required,min=1,max=128"`
}

func pairingDismiss(ctx context.Context, c *call, p pairingDismissParams) (any, error) {
	b, err := c.pairing()
	if err != nil {
		return nil, err
	}
	made, err := b.DismissPairing(ctx, channel.PairingRef{ID: p.RequestID}, c.caller())
	if err != nil {
		return nil, err
	}
	return object{"requestId": made.ID, "senderId": strconv.FormatInt(made.UserID, 10)}, nil
}

type pairingRevokeParams struct {
	Channel   string `json:"channel" p:"min=1,max=64"`
	AccountID string `json:"accountId" p:"min=1,max=64"`
	SenderID  string `json:"senderId" p:"required,min=1,max=32"`
}

// pairingRevoke takes every right of a person away that fits: in all accounts when none is named.
func pairingRevoke(ctx context.Context, c *call, p pairingRevokeParams) (any, error) {
	b, err := c.pairing()
	if err != nil {
		return nil, err
	}
	user, err := strconv.ParseInt(p.SenderID, 10, 64)
	if err != nil {
		return nil, c.badParam("/senderId", "must be a decimal number")
	}
	granted, err := b.Grants(ctx, "")
	if err != nil {
		return nil, err
	}
	granted = slices.DeleteFunc(granted, func(g channel.Grant) bool {
		a := c.accountOf(g.Channel)
		return g.UserID != user || (p.Channel != "" && p.Channel != a.kind) || (p.AccountID != "" && p.AccountID != a.id)
	})
	revoked := 0
	for _, g := range granted {
		had, err := b.RevokePairing(ctx, g.Peer, c.caller())
		if err != nil {
			return nil, err
		}
		if had {
			revoked++
		}
	}
	if revoked == 0 {
		return nil, chat.Errorf(chat.CodeNotFound, "nobody with the number %d was let in; see laneway pair list", user)
	}
	return object{"senderId": p.SenderID, "revoked": revoked}, nil
}
