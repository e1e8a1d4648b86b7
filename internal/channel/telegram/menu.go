package telegram

import (
	"context"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
)

// menu sets the commands of Telegram's menu, unless Telegram has them already.
func (p *poller) menu(ctx context.Context) error {
	list := []map[string]string{}
	for _, cmd := range p.cfg.commands {
		description := firstChars(cmd.Description)
		if description != "" && len(cmd.Name) <= 32 && len(list) < 100 {
			list = append(list, map[string]string{"command": cmd.Name, "description": description})
		}
	}
	if len(list) == 0 {
		return nil
	}
	var shown []tgbotapi.BotCommand
	if err := p.api.call(ctx, signTime, "getMyCommands", nil, &shown); err != nil {
		return err
	}
	if sameMenu(shown, list) {
		return nil
	}
	return p.api.call(ctx, signTime, "setMyCommands", tgbotapi.Params{"commands": jsonOf(list)}, nil)
}

// firstChars returns the first 256 characters of a description: Telegram refuses a longer one.
func firstChars(s string) string {
	if r := []rune(s); len(r) > 256 {
		return string(r[:256])
	}
	return s
}

func sameMenu(shown []tgbotapi.BotCommand, list []map[string]string) bool {
	if len(shown) != len(list) {
		return false
	}
	for i, s := range shown {
		if s.Command != list[i]["command"] || s.Description != list[i]["description"] {
			return false
		}
	}
	return true
}
