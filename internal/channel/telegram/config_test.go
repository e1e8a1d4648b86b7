package telegram_test

import (
	"fmt"
	"strings"
	"testing"

	"laneway/internal/channel/telegram"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// newPlain makes a channel with its own transport.
func newPlain(t *testing.T, token, address string) *telegram.Channel {
	t.Helper()
	ch, err := telegram.New(telegram.Config{Token: token, APIURL: address, Agent: "main"}, telegram.Deps{Records: sqlitetest.Open(t, sqlite.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestConfig(t *testing.T) {
	t.Parallel()
	const token = "123456789:secret-canary-123456789"
	good := telegram.Config{Token: token, Agent: "main"}
	deps := telegram.Deps{Records: sqlitetest.Open(t, sqlite.Config{})}
	for name, c := range map[string]struct {
		change func(*telegram.Config)
		want   string
	}{
		"no token":     {func(c *telegram.Config) { c.Token = "" }, "bot token"},
		"odd token":    {func(c *telegram.Config) { c.Token = "canary" }, "bot token"},
		"access":       {func(c *telegram.Config) { c.Access = "everyone" }, "access must be"},
		"group stop":   {func(c *telegram.Config) { c.GroupStop = "owner" }, "group_stop must be"},
		"poll timeout": {func(c *telegram.Config) { c.PollTimeout = 1 }, "poll timeout"},
		"attachment":   {func(c *telegram.Config) { c.MaxAttachment = 1 << 40 }, "attachment"},
		"address":      {func(c *telegram.Config) { c.APIURL = "https://user:canary@example.org" }, "no password"},
		"agent":        {func(c *telegram.Config) { c.Agent = "" }, "agent"},
		"no secret":    {func(c *telegram.Config) { c.Mode, c.WebhookURL = "webhook", "https://example.org" }, "32 characters"},
		"short secret": {func(c *telegram.Config) {
			c.Mode, c.WebhookURL, c.WebhookSecret = "webhook", "https://example.org", "canary"
		}, "32 characters"},
		"blank secret": {func(c *telegram.Config) {
			c.Mode, c.WebhookURL, c.WebhookSecret = "webhook", "https://example.org", strings.Repeat(" ", 40)
		}, "characters A-Z"},
		"plain webhook":  {func(c *telegram.Config) { c.Mode, c.WebhookURL = "webhook", "http://example.org" }, "https"},
		"unknown method": {func(c *telegram.Config) { c.Mode = "push" }, "mode must be"},
	} {
		cfg := good
		c.change(&cfg)
		_, err := telegram.New(cfg, deps)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want something about %q without secrets", name, err, c.want)
		}
	}
	if _, err := telegram.New(good, telegram.Deps{}); err == nil {
		t.Error("a channel without a place for what it keeps was accepted")
	}
	if s := fmt.Sprintf("%v %+v %#v %s", good, good, good, good.LogValue()); strings.Contains(s, "canary") {
		t.Errorf("the configuration prints its token: %s", s)
	}
}
