package cron

import (
	"strings"

	"laneway/internal/chat"
)

// Names are the sessions that the job names and whose keys contain no identity: its owner owns those that do not exist yet, so that no other principal makes
// them before the job runs.
func (j Job) Names() (keys []chat.SessionKey) {
	add := func(session string) {
		if key, err := chat.ParseSessionKey(session, j.Agent); err == nil && key.RightOf(j.Owner) == chat.RightFree {
			keys = append(keys, key)
		}
	}
	if session, ok := strings.CutPrefix(j.Session, NamedSession); ok {
		add(session)
	}
	for _, main := range []Delivery{j.Delivery, j.Alert.Delivery} {
		failure, _ := main.Failure()
		completion, _ := main.Completion()
		for _, d := range []Delivery{main, failure, completion} {
			if d.Mode == DeliverAnnounce && d.Channel == "web" && d.To != "" {
				add(d.To)
			}
		}
	}
	return keys
}

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
