package wire

// Names of the protocol for channels.
const (
	// ChannelWeb is the channel of the gateway's own sockets.
	ChannelWeb = "web"
	// AccountDefault is the id of the only account of a channel.
	AccountDefault = "default"
)

// ChannelsStatusParams are the parameters of channels.status.
type ChannelsStatusParams struct {
	Probe     bool   `json:"probe,omitempty"`                  // check now; otherwise the answer may be some seconds old, except for the state of channels
	TimeoutMs int64  `json:"timeoutMs,omitempty" rule:"min=0"` // accepted and ignored
	Channel   string `json:"channel,omitempty" rule:"min=1"`   // only this channel
}

// ChannelsStatusResult is the result of channels.status.
type ChannelsStatusResult struct {
	TS        int64                       `json:"ts"`                      // the time of the gateway in Unix milliseconds
	Order     []string                    `json:"channelOrder"`            // the ids of the channels
	Labels    map[string]string           `json:"channelLabels"`           // their display names, by id
	Channels  map[string]ChannelSummary   `json:"channels"`                // their states, by id
	Accounts  map[string][]ChannelAccount `json:"channelAccounts"`         // their accounts, by id
	DefaultID map[string]string           `json:"channelDefaultAccountId"` // the first account of each, by id
}

// ChannelSummary is a [WebSummary] for web, which is the sockets of the gateway, and a [NetworkSummary] for all other channels.
type ChannelSummary struct{ Of any }

// Variants lists the types of the summary.
func (ChannelSummary) Variants() []any { return []any{WebSummary{}, NetworkSummary{}} }

// MarshalJSON is the JSON of the variant.
func (s ChannelSummary) MarshalJSON() ([]byte, error) { return encode(s.Of) }

// UnmarshalJSON stores the JSON of the variant.
func (s *ChannelSummary) UnmarshalJSON(data []byte) error { return storeRaw(&s.Of, data) }

// WebSummary is the state of the channel web.
type WebSummary struct {
	Connections int `json:"connections"` // open connections
}

// NetworkSummary is the state of a channel.
type NetworkSummary struct {
	Configured bool `json:"configured"` // its settings are complete
	Connected  bool `json:"connected"`  // its network answers
	Running    bool `json:"running"`    // it is running
}

// ChannelAccount is an account of a channel.
type ChannelAccount struct {
	AccountID       string  `json:"accountId"`           // its id; default when the channel has only one account
	Enabled         bool    `json:"enabled"`             // the configuration has not switched it off
	Configured      bool    `json:"configured"`          // its settings are complete
	Running         bool    `json:"running"`             // it is running
	Connected       bool    `json:"connected"`           // its network answers
	State           string  `json:"state,omitempty"`     // its state in one word
	Mode            string  `json:"mode,omitempty"`      // how messages arrive: polling or webhook
	LastError       *string `json:"lastError"`           // the last error; null = no error
	LastPollAgeMs   *int64  `json:"lastPollAgeMs"`       // time since the last poll for messages; null = never, or it does not poll
	PollOwner       string  `json:"pollOwner,omitempty"` // the process that polls for messages
	OutboxWaiting   int     `json:"outboxWaiting"`       // answers that wait to be sent
	OutboxFailed    int     `json:"outboxFailed"`        // answers that could not be sent
	OutboxMaybeSent int     `json:"outboxMaybeSent"`     // answers that may have arrived and are not sent again
}
