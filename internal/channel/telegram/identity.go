package telegram

import (
	"sync/atomic"

	"laneway/internal/channel"
)

// identity has the id and the names of the bot. It is safe for concurrent use.
type identity struct {
	bot  int64  // Telegram's id of the bot
	name string // of the channel: `telegram:<bot id>`
	// user is the user name without @; nil until getMe has been answered.
	user atomic.Pointer[string]
}

// username returns the bot's user name without @, "" until Telegram has answered getMe.
func (i *identity) username() string {
	if p := i.user.Load(); p != nil {
		return *p
	}
	return ""
}

// peer returns a person in a chat of this bot.
func (i *identity) peer(userID, chatID int64) channel.Peer {
	return channel.Peer{Channel: i.name, UserID: userID, ChatID: chatID}
}
