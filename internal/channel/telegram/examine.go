package telegram

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrToken is wrapped when Telegram refuses the token of a bot.
var ErrToken = errors.New("the token is refused")

// Standing is what Telegram reports about a bot.
type Standing struct {
	// Name is the bot's user name.
	Name string
	// Webhook is the address to which Telegram delivers; "" means that updates are polled.
	Webhook string
	// Problem is Telegram's reason for the last failed delivery; "" if none failed.
	Problem string
}

// Examine queries Telegram for the bot of cfg and its webhook. It changes nothing and may be called while the channel runs. It uses only the
// token and the API address of cfg, and of deps the transport and the proxy. No error contains the token.
func Examine(ctx context.Context, cfg Config, deps Deps) (Standing, error) {
	transport := deps.Transport
	if transport == nil {
		own := newTransport(deps.Proxy)
		defer own.CloseIdleConnections()
		transport = own
	}
	cfg = cfg.withDefaults()
	api := &client{base: cfg.APIURL, token: cfg.Token, transport: transport, obs: NopObserver{}, limits: newLimiter()}
	var me struct {
		Username string `json:"username"`
	}
	if err := api.call(ctx, callTime, "getMe", nil, &me); err != nil {
		var refused *apiError
		if errors.As(err, &refused) && refused.reason == reasonUnauthorized {
			return Standing{}, fmt.Errorf("%w: %w", ErrToken, err)
		}
		return Standing{}, err
	}
	var hook struct {
		URL       string `json:"url"`
		LastError string `json:"last_error_message"`
	}
	if err := api.call(ctx, callTime, "getWebhookInfo", nil, &hook); err != nil {
		return Standing{}, err
	}
	return Standing{Name: me.Username, Webhook: hook.URL, Problem: strings.TrimSpace(hook.LastError)}, nil
}
