package dispatch

import (
	"context"
	"errors"
	"strconv"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// welcome is the message to a person after the operator has granted them access.
const welcome = "You are let in. Write to me."

// errNoPairing is the error when no open request matches.
var errNoPairing = chat.Errorf(chat.CodeNotFound, "there is no open request like this: it was used, dismissed, or is older than an hour; see laneway pair list")

// pairings returns the store's pairings. Stores outside of this module may lack them.
func (d *Dispatcher) pairings() (channel.Pairings, error) {
	p, ok := d.store.(channel.Pairings)
	if !ok {
		return nil, chat.Errorf(chat.CodeInvalid, "the store %s keeps no pairings", d.store.Kind())
	}
	return p, nil
}

// OpenPairings lists the requests for access; "" = in every channel. The codes are secrets of the people who requested access: callers must
// not show them.
func (d *Dispatcher) OpenPairings(ctx context.Context, of string) ([]channel.Pairing, error) {
	p, err := d.pairings()
	if err != nil {
		return nil, err
	}
	return p.OpenPairings(ctx, of)
}

// Grants lists the people with access; "" = in every channel.
func (d *Dispatcher) Grants(ctx context.Context, of string) ([]channel.Grant, error) {
	p, err := d.pairings()
	if err != nil {
		return nil, err
	}
	return p.Grants(ctx, of)
}

// ApprovePairing grants a person access and, with notify, sends them a notice through the outbox. chat.ErrNotFound: no such open request
// exists. noticed is false when the notice could not be stored; access is granted nevertheless.
func (d *Dispatcher) ApprovePairing(ctx context.Context, ref channel.PairingRef, notify bool, by chat.Caller) (made channel.Pairing, noticed bool, err error) {
	p, err := d.pairings()
	if err != nil {
		return made, false, err
	}
	made, err = p.ApprovePairing(ctx, ref, changedBy(by))
	switch {
	case errors.Is(err, channel.ErrPairingUnknown):
		return made, false, errNoPairing
	case err != nil:
		return made, false, err
	case !notify:
		return made, false, nil
	}
	err = d.store.Enqueue(ctx, []store.Outgoing{{
		ID: newID(), Target: chat.Target{Channel: made.Channel, ChatID: strconv.FormatInt(made.ChatID, 10)}, Kind: store.KindNotice, Text: welcome,
		Count: 1, ExpiresAt: time.Now().Add(noticeLife),
	}})
	if err != nil {
		d.log.WarnContext(ctx, "the notice of an approved pairing was not stored", "channel", chat.ChannelKind(made.Channel), "err", err)
		return made, false, nil
	}
	d.outbox.Wake()
	return made, true, nil
}

// DismissPairing ends a request without granting access. chat.ErrNotFound: no such open request exists.
func (d *Dispatcher) DismissPairing(ctx context.Context, ref channel.PairingRef, by chat.Caller) (channel.Pairing, error) {
	p, err := d.pairings()
	if err != nil {
		return channel.Pairing{}, err
	}
	made, err := p.DismissPairing(ctx, ref, changedBy(by))
	if errors.Is(err, channel.ErrPairingUnknown) {
		return made, errNoPairing
	}
	return made, err
}

// RevokePairing revokes the access of a person; it reports whether they had access.
func (d *Dispatcher) RevokePairing(ctx context.Context, who channel.Peer, by chat.Caller) (bool, error) {
	p, err := d.pairings()
	if err != nil {
		return false, err
	}
	return p.RevokePairing(ctx, who, changedBy(by))
}

func changedBy(c chat.Caller) chat.ChangedBy {
	return chat.ChangedBy{Who: c.Principal, Peer: c.Peer, RequestID: c.RequestID}
}
