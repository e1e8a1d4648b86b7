package chat

import "strings"

// ChannelKind is a channel's name without its account, fit for a metric label and a configuration key: "telegram" of "telegram:shop".
func ChannelKind(channel string) string {
	kind, _, _ := strings.Cut(channel, ":")
	return kind
}
