// Package pairing has the methods of the protocol with which an operator grants people access to a
// channel: list, approve, dismiss, revoke.
//
// [Methods] returns the rows of the method table; the [Backend] keeps requests and grants. An
// account is named as in the configuration, not by its number. The list contains no codes, because
// a code proves the identity of a person. The package keeps no state and starts no goroutine.
package pairing

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
)

// Backend has the channels that accept people after an operator approved them. Errors are
// *chat.Error values.
type Backend interface {
	OpenPairings(ctx context.Context, channel string) ([]channel.Pairing, error)
	Grants(ctx context.Context, channel string) ([]channel.Grant, error)
	// ApprovePairing grants a person access and reports whether they were sent a message.
	ApprovePairing(ctx context.Context, ref channel.PairingRef, notify bool, by chat.Caller) (p channel.Pairing, notified bool, err error)
	DismissPairing(ctx context.Context, ref channel.PairingRef, by chat.Caller) (channel.Pairing, error)
	RevokePairing(ctx context.Context, who channel.Peer, by chat.Caller) (bool, error)
}

// Config of the methods.
type Config struct {
	// Backend is nil when the gateway has no channels.
	Backend Backend
	// Channels returns the configured accounts with their current state.
	Channels func() []chat.ChannelStatus
}

// handlers implement the methods of pairings.
type handlers struct{ Config }

// Methods returns the rows of the table for pairings.
func Methods(cfg Config) []*rpc.Method {
	h := handlers{cfg}
	return []*rpc.Method{
		rpc.Define("channels.pairing.list", chat.ScopeAdmin, h.list),
		rpc.Define("channels.pairing.approve", chat.ScopeAdmin, h.approve, rpc.Audited),
		rpc.Define("channels.pairing.dismiss", chat.ScopeAdmin, h.dismiss, rpc.Audited),
		rpc.Define("channels.pairing.revoke", chat.ScopeAdmin, h.revoke, rpc.Audited),
	}
}

// backend returns the backend of the channels.
func (h handlers) backend() (Backend, error) {
	if h.Backend == nil {
		return nil, chat.Errorf(chat.CodeInvalid, "this gateway has no channels")
	}
	return h.Backend, nil
}

// account is a channel's account as the list names it. An account that is no longer configured has
// the number in its name.
type account struct{ kind, id, label string }

func (h handlers) accountOf(name string) account {
	kind, rest, _ := strings.Cut(name, ":")
	for _, ch := range h.Channels() {
		if ch.Name == name {
			return account{ch.ID, cmp.Or(ch.AccountID, wire.AccountDefault), cmp.Or(ch.Label, ch.ID)}
		}
	}
	return account{kind, cmp.Or(rest, wire.AccountDefault), kind}
}

// list never returns a code, because a code proves the identity of the person to the operator.
func (h handlers) list(ctx context.Context, c *rpc.Call, p wire.PairingListParams) (wire.PairingListResult, error) {
	b, err := h.backend()
	if err != nil {
		return wire.PairingListResult{}, err
	}
	open, err := b.OpenPairings(ctx, "")
	if err != nil {
		return wire.PairingListResult{}, err
	}
	fits := func(a account) bool {
		return (p.Channel == "" || p.Channel == a.kind) && (p.AccountID == "" || p.AccountID == a.id)
	}
	requests := []wire.PairingRequest{}
	for _, o := range open {
		a := h.accountOf(o.Channel)
		if !fits(a) {
			continue
		}
		requests = append(requests, wire.PairingRequest{
			RequestID: o.ID, Channel: a.kind, ChannelLabel: a.label, AccountID: a.id, SenderID: strconv.FormatInt(o.UserID, 10),
			SenderLabel: cmp.Or(o.Name, strconv.FormatInt(o.UserID, 10)), CreatedAt: rpc.ISOTime(o.CreatedAt), LastSeenAt: rpc.ISOTime(o.CreatedAt),
			ExpiresAt: rpc.ISOTime(o.ExpiresAt), NotifySupported: true,
		})
	}
	out := wire.PairingListResult{
		Accounts: h.accounts(fits), Requests: requests,
		Limits: wire.PairingLimits{PendingPerAccount: channel.MaxPairingsPerBot, TTLMs: channel.PairingLife.Milliseconds()},
	}
	if !c.Extended {
		return out, nil
	}
	granted, err := b.Grants(ctx, "")
	if err != nil {
		return wire.PairingListResult{}, err
	}
	out.Granted = h.grantViews(granted, fits)
	return out, nil
}

func (h handlers) accounts(fits func(account) bool) []wire.PairingAccount {
	accounts := []wire.PairingAccount{}
	for _, ch := range h.Channels() {
		a := h.accountOf(ch.Name)
		if ch.ID == wire.ChannelWeb || !fits(a) {
			continue
		}
		accounts = append(accounts, wire.PairingAccount{Channel: a.kind, ChannelLabel: a.label, AccountID: a.id, NotifySupported: true})
	}
	return accounts
}

func (h handlers) grantViews(granted []channel.Grant, fits func(account) bool) []wire.PairingGrant {
	views := []wire.PairingGrant{}
	for _, g := range granted {
		a := h.accountOf(g.Channel)
		if fits(a) {
			views = append(views, wire.PairingGrant{
				Channel: a.kind, ChannelLabel: a.label, AccountID: a.id, SenderID: strconv.FormatInt(g.UserID, 10), ChatID: strconv.FormatInt(g.ChatID, 10),
				SenderLabel: cmp.Or(g.Name, strconv.FormatInt(g.UserID, 10)), ApprovedBy: g.ApprovedBy, ApprovedAt: rpc.ISOTime(g.ApprovedAt),
			})
		}
	}
	return views
}

// approve accepts the id from the list, or the code that the person read out.
func (h handlers) approve(ctx context.Context, c *rpc.Call, p wire.PairingApproveParams) (wire.PairingApproveResult, error) {
	b, err := h.backend()
	if err != nil {
		return wire.PairingApproveResult{}, err
	}
	if (p.RequestID == "") == (p.Code == "") {
		return wire.PairingApproveResult{}, c.BadParam("/requestId", "must be there, or code instead of it")
	}
	notify := p.Notify == nil || *p.Notify
	made, notified, err := b.ApprovePairing(ctx, channel.PairingRef{ID: p.RequestID, Code: p.Code}, notify, c.Caller())
	if err != nil {
		return wire.PairingApproveResult{}, err
	}
	notification := "not-requested"
	switch {
	case notified:
		notification = "sent"
	case notify:
		notification = "failed"
	}
	return wire.PairingApproveResult{
		RequestID: made.ID, SenderID: strconv.FormatInt(made.UserID, 10), Notification: notification, CommandOwnerBootstrap: "not-requested",
	}, nil
}

func (h handlers) dismiss(ctx context.Context, c *rpc.Call, p wire.PairingDismissParams) (wire.PairingDismissResult, error) {
	b, err := h.backend()
	if err != nil {
		return wire.PairingDismissResult{}, err
	}
	made, err := b.DismissPairing(ctx, channel.PairingRef{ID: p.RequestID}, c.Caller())
	if err != nil {
		return wire.PairingDismissResult{}, err
	}
	return wire.PairingDismissResult{RequestID: made.ID, SenderID: strconv.FormatInt(made.UserID, 10)}, nil
}

// revoke revokes every matching access of a person: in all accounts when no account is named.
func (h handlers) revoke(ctx context.Context, c *rpc.Call, p wire.PairingRevokeParams) (wire.PairingRevokeResult, error) {
	b, err := h.backend()
	if err != nil {
		return wire.PairingRevokeResult{}, err
	}
	user, err := strconv.ParseInt(p.SenderID, 10, 64)
	if err != nil {
		return wire.PairingRevokeResult{}, c.BadParam("/senderId", "must be a decimal number")
	}
	granted, err := b.Grants(ctx, "")
	if err != nil {
		return wire.PairingRevokeResult{}, err
	}
	granted = slices.DeleteFunc(granted, func(g channel.Grant) bool {
		a := h.accountOf(g.Channel)
		return g.UserID != user || (p.Channel != "" && p.Channel != a.kind) || (p.AccountID != "" && p.AccountID != a.id)
	})
	revoked := 0
	for _, g := range granted {
		had, err := b.RevokePairing(ctx, g.Peer, c.Caller())
		if err != nil {
			return wire.PairingRevokeResult{}, err
		}
		if had {
			revoked++
		}
	}
	if revoked == 0 {
		return wire.PairingRevokeResult{}, chat.Errorf(chat.CodeNotFound, "no approved user has the number %d; see laneway pair list", user)
	}
	return wire.PairingRevokeResult{SenderID: p.SenderID, Revoked: revoked}, nil
}
