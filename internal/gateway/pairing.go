package gateway

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/wire"
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
func pairingList(ctx context.Context, c *call, p wire.PairingListParams) (wire.PairingListResult, error) {
	b, err := c.pairing()
	if err != nil {
		return wire.PairingListResult{}, err
	}
	open, err := b.OpenPairings(ctx, "")
	if err != nil {
		return wire.PairingListResult{}, err
	}
	fits := func(a pairingAccount) bool {
		return (p.Channel == "" || p.Channel == a.kind) && (p.AccountID == "" || p.AccountID == a.id)
	}
	requests := []wire.PairingRequest{}
	for _, o := range open {
		a := c.accountOf(o.Channel)
		if !fits(a) {
			continue
		}
		requests = append(requests, wire.PairingRequest{
			RequestID: o.ID, Channel: a.kind, ChannelLabel: a.label, AccountID: a.id, SenderID: strconv.FormatInt(o.UserID, 10),
			SenderLabel: cmp.Or(o.Name, strconv.FormatInt(o.UserID, 10)), CreatedAt: isoTime(o.CreatedAt), LastSeenAt: isoTime(o.CreatedAt),
			ExpiresAt: isoTime(o.ExpiresAt), NotifySupported: true,
		})
	}
	out := wire.PairingListResult{
		Accounts: c.pairingAccounts(fits), Requests: requests,
		Limits: wire.PairingLimits{PendingPerAccount: channel.MaxPairingsPerBot, TTLMs: channel.PairingLife.Milliseconds()},
	}
	if !c.extended {
		return out, nil
	}
	granted, err := b.Grants(ctx, "")
	if err != nil {
		return wire.PairingListResult{}, err
	}
	out.Granted = c.grantViews(granted, fits)
	return out, nil
}

func (c *call) pairingAccounts(fits func(pairingAccount) bool) []wire.PairingAccount {
	accounts := []wire.PairingAccount{}
	for _, ch := range c.srv.health.Load().status.Channels {
		a := c.accountOf(ch.Name)
		if ch.ID == webChannel || !fits(a) {
			continue
		}
		accounts = append(accounts, wire.PairingAccount{Channel: a.kind, ChannelLabel: a.label, AccountID: a.id, NotifySupported: true})
	}
	return accounts
}

func (c *call) grantViews(granted []channel.Grant, fits func(pairingAccount) bool) []wire.PairingGrant {
	views := []wire.PairingGrant{}
	for _, g := range granted {
		a := c.accountOf(g.Channel)
		if fits(a) {
			views = append(views, wire.PairingGrant{
				Channel: a.kind, ChannelLabel: a.label, AccountID: a.id, SenderID: strconv.FormatInt(g.UserID, 10), ChatID: strconv.FormatInt(g.ChatID, 10),
				SenderLabel: cmp.Or(g.Name, strconv.FormatInt(g.UserID, 10)), ApprovedBy: g.ApprovedBy, ApprovedAt: isoTime(g.ApprovedAt),
			})
		}
	}
	return views
}

// pairingApprove takes the id from the list, or the code that the person read out.
func pairingApprove(ctx context.Context, c *call, p wire.PairingApproveParams) (wire.PairingApproveResult, error) {
	b, err := c.pairing()
	if err != nil {
		return wire.PairingApproveResult{}, err
	}
	if (p.RequestID == "") == (p.Code == "") {
		return wire.PairingApproveResult{}, c.badParam("/requestId", "must be there, or code instead of it")
	}
	notify := p.Notify == nil || *p.Notify
	made, told, err := b.ApprovePairing(ctx, channel.PairingRef{ID: p.RequestID, Code: p.Code}, notify, c.caller())
	if err != nil {
		return wire.PairingApproveResult{}, err
	}
	notification := "not-requested"
	switch {
	case told:
		notification = "sent"
	case notify:
		notification = "failed"
	}
	return wire.PairingApproveResult{
		RequestID: made.ID, SenderID: strconv.FormatInt(made.UserID, 10), Notification: notification, CommandOwnerBootstrap: "not-requested",
	}, nil
}

func pairingDismiss(ctx context.Context, c *call, p wire.PairingDismissParams) (wire.PairingDismissResult, error) {
	b, err := c.pairing()
	if err != nil {
		return wire.PairingDismissResult{}, err
	}
	made, err := b.DismissPairing(ctx, channel.PairingRef{ID: p.RequestID}, c.caller())
	if err != nil {
		return wire.PairingDismissResult{}, err
	}
	return wire.PairingDismissResult{RequestID: made.ID, SenderID: strconv.FormatInt(made.UserID, 10)}, nil
}

// pairingRevoke takes every right of a person away that fits: in all accounts when none is named.
func pairingRevoke(ctx context.Context, c *call, p wire.PairingRevokeParams) (wire.PairingRevokeResult, error) {
	b, err := c.pairing()
	if err != nil {
		return wire.PairingRevokeResult{}, err
	}
	user, err := strconv.ParseInt(p.SenderID, 10, 64)
	if err != nil {
		return wire.PairingRevokeResult{}, c.badParam("/senderId", "must be a decimal number")
	}
	granted, err := b.Grants(ctx, "")
	if err != nil {
		return wire.PairingRevokeResult{}, err
	}
	granted = slices.DeleteFunc(granted, func(g channel.Grant) bool {
		a := c.accountOf(g.Channel)
		return g.UserID != user || (p.Channel != "" && p.Channel != a.kind) || (p.AccountID != "" && p.AccountID != a.id)
	})
	revoked := 0
	for _, g := range granted {
		had, err := b.RevokePairing(ctx, g.Peer, c.caller())
		if err != nil {
			return wire.PairingRevokeResult{}, err
		}
		if had {
			revoked++
		}
	}
	if revoked == 0 {
		return wire.PairingRevokeResult{}, chat.Errorf(chat.CodeNotFound, "nobody with the number %d was let in; see laneway pair list", user)
	}
	return wire.PairingRevokeResult{SenderID: p.SenderID, Revoked: revoked}, nil
}
