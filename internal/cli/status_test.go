package cli

import (
	"testing"

	"laneway/internal/wire"
)

// Before, the status of a gateway without channels had a row for unused webhooks.
func TestStatusShowsChannelsThatAreConfigured(t *testing.T) {
	t.Parallel()
	refused := "410 Gone"
	account := func(change func(*wire.ChannelAccount)) []wire.ChannelAccount {
		a := wire.ChannelAccount{AccountID: "default", Configured: true}
		change(&a)
		return []wire.ChannelAccount{a}
	}
	for _, row := range []struct {
		name     string
		accounts []wire.ChannelAccount
		shown    bool
	}{
		{"web", account(func(*wire.ChannelAccount) {}), false},
		{"webhook", account(func(*wire.ChannelAccount) {}), false},
		{"webhook", account(func(a *wire.ChannelAccount) { a.OutboxWaiting = 1 }), true},
		{"webhook", account(func(a *wire.ChannelAccount) { a.LastError = &refused }), true},
		{"telegram", account(func(*wire.ChannelAccount) {}), true},
		{"telegram", account(func(a *wire.ChannelAccount) { a.Configured = false }), false},
	} {
		got := channelRows(wire.ChannelsStatusResult{Order: []string{row.name}, Accounts: map[string][]wire.ChannelAccount{row.name: row.accounts}})
		if (len(got) == 2) != row.shown {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
