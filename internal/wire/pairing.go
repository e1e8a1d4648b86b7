package wire

// PairingListParams are the parameters of channels.pairing.list.
type PairingListParams struct {
	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`   // only this channel
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"` // only this account
	Extended  bool   `json:"extended,omitempty"`                      // asks for the extended view
}

// WantsExtended reports whether the call asks for the extended view.
func (p *PairingListParams) WantsExtended() bool { return p.Extended }

// PairingListResult is the result of channels.pairing.list. It has no code: a person proves their identity with the code.
type PairingListResult struct {
	Accounts               []PairingAccount `json:"accounts"`               // the accounts with pairing
	CommandOwnerConfigured bool             `json:"commandOwnerConfigured"` // always false
	Granted                []PairingGrant   `json:"granted,omitzero"`       // Extended: the senders that were approved
	Limits                 PairingLimits    `json:"limits"`                 // the limits of requests
	Requests               []PairingRequest `json:"requests"`               // open requests
}

// PairingAccount is an account of a channel.
type PairingAccount struct {
	AccountID       string `json:"accountId"`       // its id
	Channel         string `json:"channel"`         // its channel
	ChannelLabel    string `json:"channelLabel"`    // the display name of the channel
	NotifySupported bool   `json:"notifySupported"` // always true
}

// PairingLimits are the limits of requests.
type PairingLimits struct {
	PendingPerAccount int   `json:"pendingPerAccount"` // the most open requests of an account
	TTLMs             int64 `json:"ttlMs"`             // how long a request is open
}

// PairingRequest is the request of a sender for approval.
type PairingRequest struct {
	AccountID       string `json:"accountId"`       // the account that received the request
	Channel         string `json:"channel"`         // its channel
	ChannelLabel    string `json:"channelLabel"`    // the display name of the channel
	CreatedAt       string `json:"createdAt"`       // when, ISO 8601
	ExpiresAt       string `json:"expiresAt"`       // when the request expires, ISO 8601
	LastSeenAt      string `json:"lastSeenAt"`      // as createdAt
	NotifySupported bool   `json:"notifySupported"` // always true
	RequestID       string `json:"requestId"`       // for approve and dismiss
	SenderID        string `json:"senderId"`        // the id of the sender
	SenderLabel     string `json:"senderLabel"`     // the name of the sender
}

// PairingGrant is a sender that was approved.
type PairingGrant struct {
	AccountID    string `json:"accountId"`    // the account
	ApprovedAt   string `json:"approvedAt"`   // when, ISO 8601
	ApprovedBy   string `json:"approvedBy"`   // the credential that approved it
	Channel      string `json:"channel"`      // the channel
	ChannelLabel string `json:"channelLabel"` // the display name of the channel
	ChatID       string `json:"chatId"`       // the chat in which the sender may talk
	SenderID     string `json:"senderId"`     // the id of the sender
	SenderLabel  string `json:"senderLabel"`  // the name of the sender
}

// PairingApproveParams are the parameters of channels.pairing.approve: requestId or code.
type PairingApproveParams struct {
	_ struct{} `also:"bootstrapCommandOwner"`

	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`    // accepted and ignored
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"`  // accepted and ignored
	RequestID string `json:"requestId,omitempty" rule:"min=1,max=128"` // from the list
	Code      string `json:"code,omitempty" rule:"min=1,max=64"`       // the code that the sender received
	Notify    *bool  `json:"notify,omitempty"`                         // whether the sender receives a message; absent = true
}

// PairingApproveResult is the result of channels.pairing.approve.
type PairingApproveResult struct {
	CommandOwnerBootstrap string `json:"commandOwnerBootstrap" rule:"enum=not-requested"`    // always not-requested
	Notification          string `json:"notification" rule:"enum=not-requested|sent|failed"` // the message to the sender
	RequestID             string `json:"requestId"`                                          // the request
	SenderID              string `json:"senderId"`                                           // the id of the sender
}

// PairingDismissParams are the parameters of channels.pairing.dismiss.
type PairingDismissParams struct {
	Channel   string `json:"channel" rule:"required,min=1,max=64"`    // accepted and ignored
	AccountID string `json:"accountId" rule:"required,min=1,max=64"`  // accepted and ignored
	RequestID string `json:"requestId" rule:"required,min=1,max=128"` // from the list
}

// PairingDismissResult is the result of channels.pairing.dismiss.
type PairingDismissResult struct {
	RequestID string `json:"requestId"` // the request
	SenderID  string `json:"senderId"`  // the id of the sender
}

// PairingRevokeParams are the parameters of channels.pairing.revoke.
type PairingRevokeParams struct {
	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`   // only in this channel
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"` // only in this account
	SenderID  string `json:"senderId" rule:"required,min=1,max=32"`   // the id of the sender
}

// PairingRevokeResult is the result of channels.pairing.revoke.
type PairingRevokeResult struct {
	Revoked  int    `json:"revoked"`  // in how many accounts the sender was approved
	SenderID string `json:"senderId"` // the id of the sender
}
