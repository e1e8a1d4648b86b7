package cron

import (
	"strings"

	"laneway/internal/chat"
)

// In reports whether a job belongs to a conversation: its runs are turns of it, or its answers are sent to it.
func (j Job) In(key chat.SessionKey) bool {
	named := func(session string) bool {
		at, err := chat.ParseSessionKey(session, j.Agent)
		return err == nil && at == key
	}
	if session, ok := strings.CutPrefix(j.Session, NamedSession); ok && named(session) || j.Session == Main && chat.MainKey(j.Agent) == key {
		return true
	}
	d := j.Delivery
	if d.Mode != DeliverAnnounce {
		return false
	}
	switch to := key.Target(); chat.ChannelKind(d.Channel) {
	case "", "last":
		return chat.MainKey(j.Agent) == key
	case "web":
		return named(d.To) || d.To == "" && chat.MainKey(j.Agent) == key
	default:
		return to == chat.Target{Channel: chat.ChannelKind(d.Channel), ChatID: d.To, Thread: d.Thread} && !to.IsZero()
	}
}
