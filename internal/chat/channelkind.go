package chat

import "strings"

// ChannelKind returns a channel's name without its account, for metric labels and configuration keys: "telegram" for "telegram:shop".
func ChannelKind(channel string) string {
	kind, _, _ := strings.Cut(channel, ":")
	return kind
}
