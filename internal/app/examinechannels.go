package app

import (
	"context"
	"errors"
	"strings"

	"laneway/internal/channel/telegram"
	"laneway/internal/config"
)

// ExamineChannels checks whether the configured bots can work: that Telegram accepts their tokens, and that it delivers to the configured
// address. It changes nothing and may run beside a gateway.
func ExamineChannels(ctx context.Context, cfg config.Config) []Finding {
	var found []Finding
	for _, bot := range cfg.Channels.Telegram.Bots() {
		s, err := telegram.Examine(ctx, telegram.Config{Token: bot.Token.Reveal(), APIURL: bot.APIURL}, telegram.Deps{Proxy: proxyOf})
		f := examineBot(bot, s)
		switch {
		case errors.Is(err, telegram.ErrToken):
			f = Finding{Failure, "Telegram refuses the token of this bot", "get the token from @BotFather and put it in"}
		case err != nil:
			f = Finding{Warning, "Telegram cannot be asked: " + err.Error(), "check the network, and api_url if it is set"}
		}
		f.Text = "telegram " + bot.Account + ": " + f.Text
		found = append(found, f)
	}
	return found
}

func examineBot(bot config.Telegram, s telegram.Standing) Finding {
	name := "@" + s.Name
	switch {
	case bot.Mode != "webhook":
		return Finding{Weight: Fine, Text: name + " is known to Telegram and polled"}
	case bot.APIURL == telegram.DefaultAPIURL && !strings.HasPrefix(bot.WebhookURL, "https://"):
		return Finding{Failure, "Telegram delivers over https only, and webhook_url is not", "put a TLS proxy in front and give its address in webhook_url"}
	case s.Webhook == "":
		return Finding{Warning, name + " has no webhook yet", "start the gateway, which sets it"}
	case s.Webhook != bot.WebhookURL:
		return Finding{Warning, "Telegram delivers for " + name + " to another address than webhook_url", "restart the gateway, which sets it; see that no other program uses this bot"}
	case s.Problem != "":
		return Finding{Warning, "Telegram could not deliver for " + name + ": " + s.Problem, "see that webhook_url leads to the gateway from outside"}
	default:
		return Finding{Weight: Fine, Text: "Telegram delivers for " + name + " to webhook_url"}
	}
}
