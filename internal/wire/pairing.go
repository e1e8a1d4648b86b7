package wire

// PairingListParams are the parameters of channels.pairing.list.
type PairingListParams struct {
	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`   // only this channel
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"` // only this account
	Extended  bool   `json:"extended,omitempty"`                      // asks for the extended view
}

// WantsExtended reports whether the call asks for the extended view.
func (p *PairingListParams) WantsExtended() bool { return p.Extended }

// PairingListResult is the result of channels.pairing.list. It never has a code: a person proves with it who they are.
type PairingListResult struct {
	Accounts               []PairingAccount `json:"accounts"`               // the accounts that let people in
	CommandOwnerConfigured bool             `json:"commandOwnerConfigured"` // always false
	Granted                []PairingGrant   `json:"granted,omitzero"`       // Extended: who was let in
	Limits                 PairingLimits    `json:"limits"`                 // the bounds of requests
	Requests               []PairingRequest `json:"requests"`               // who asks
}

// PairingAccount is an account of a channel.
type PairingAccount struct {
	AccountID       string `json:"accountId"`       // its id
	Channel         string `json:"channel"`         // its channel
	ChannelLabel    string `json:"channelLabel"`    // the name of the channel for people
	NotifySupported bool   `json:"notifySupported"` // always true
}

// PairingLimits are the bounds of requests.
type PairingLimits struct {
	PendingPerAccount int   `json:"pendingPerAccount"` // the most open requests of an account
	TTLMs             int64 `json:"ttlMs"`             // how long a request is open
}

// PairingRequest is a person who asks to be let in.
type PairingRequest struct {
	AccountID       string `json:"accountId"`       // the account that was asked
	Channel         string `json:"channel"`         // its channel
	ChannelLabel    string `json:"channelLabel"`    // the name of the channel for people
	CreatedAt       string `json:"createdAt"`       // when, ISO 8601
	ExpiresAt       string `json:"expiresAt"`       // when the request ends, ISO 8601
	LastSeenAt      string `json:"lastSeenAt"`      // as createdAt
	NotifySupported bool   `json:"notifySupported"` // always true
	RequestID       string `json:"requestId"`       // for approve and dismiss
	SenderID        string `json:"senderId"`        // the number of the person
	SenderLabel     string `json:"senderLabel"`     // their name
}

// PairingGrant is a person who was let in.
type PairingGrant struct {
	AccountID    string `json:"accountId"`    // the account
	ApprovedAt   string `json:"approvedAt"`   // when, ISO 8601
	ApprovedBy   string `json:"approvedBy"`   // by which credential
	Channel      string `json:"channel"`      // the channel
	ChannelLabel string `json:"channelLabel"` // its name for people
	ChatID       string `json:"chatId"`       // the chat in which the person may talk
	SenderID     string `json:"senderId"`     // the number of the person
	SenderLabel  string `json:"senderLabel"`  // their name
}

// PairingApproveParams are the parameters of channels.pairing.approve: requestId or code.
type PairingApproveParams struct {
	_ struct{} `also:"bootstrapCommandOwner"`

	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`    // taken without effect
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"`  // taken without effect
	RequestID string `json:"requestId,omitempty" rule:"min=1,max=128"` // from the list
	Code      string `json:"code,omitempty" rule:"min=1,max=64"`       // what the person was shown
	Notify    *bool  `json:"notify,omitempty"`                         // whether the person gets a message; absent = true
}

// PairingApproveResult is the result of channels.pairing.approve.
type PairingApproveResult struct {
	CommandOwnerBootstrap string `json:"commandOwnerBootstrap" rule:"enum=not-requested"`    // always not-requested
	Notification          string `json:"notification" rule:"enum=not-requested|sent|failed"` // the message to the person
	RequestID             string `json:"requestId"`                                          // the request
	SenderID              string `json:"senderId"`                                           // the number of the person
}

// PairingDismissParams are the parameters of channels.pairing.dismiss.
type PairingDismissParams struct {
	Channel   string `json:"channel" rule:"required,min=1,max=64"`    // taken without effect
	AccountID string `json:"accountId" rule:"required,min=1,max=64"`  // taken without effect
	RequestID string `json:"requestId" rule:"required,min=1,max=128"` // from the list
}

// PairingDismissResult is the result of channels.pairing.dismiss.
type PairingDismissResult struct {
	RequestID string `json:"requestId"` // the request
	SenderID  string `json:"senderId"`  // the number of the person
}

// PairingRevokeParams are the parameters of channels.pairing.revoke.
type PairingRevokeParams struct {
	Channel   string `json:"channel,omitempty" rule:"min=1,max=64"`   // only in this channel
	AccountID string `json:"accountId,omitempty" rule:"min=1,max=64"` // only in this account
	SenderID  string `json:"senderId" rule:"required,min=1,max=32"`   // the number of the person
}

// PairingRevokeResult is the result of channels.pairing.revoke.
type PairingRevokeResult struct {
	Revoked  int    `json:"revoked"`  // in how many accounts the person was let in
	SenderID string `json:"senderId"` // the number of the person
}
