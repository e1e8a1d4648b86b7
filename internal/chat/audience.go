package chat

import "strings"

// Audience is who can read the answer of a turn: only its principal, or every reader of one conversation. The zero value means only the
// principal.
//
// A turn with several readers shows only data of their conversation, unless the principal allows more.
type Audience struct {
	// Conversation is the conversation that the readers share; zero = the answer is private.
	Conversation SessionKey `json:"conversation,omitzero"`
	// Readers names them, for use as the subject of a sentence.
	Readers string `json:"readers,omitempty"`
}

// Shared reports whether anyone except the principal can read the answer.
func (a Audience) Shared() bool { return !a.Conversation.IsZero() }

// ConversationOf returns the conversation in which the answer of a turn is read: its session, or the conversation at the address to which
// the answer goes. A webhook has no conversation. The address of a chat does not show whether it is a group, so every chat except the
// principal's own counts as one.
func ConversationOf(session SessionKey, to Target, principal string) SessionKey {
	switch here := session.Target(); ChannelKind(to.Channel) {
	case "", "webhook":
		return session
	case "web":
		if key, err := ParseSessionKey(to.ChatID, session.Agent); err == nil {
			return key
		}
		return session
	case here.Channel:
		if here.ChatID == to.ChatID && here.Thread == to.Thread {
			return session
		}
	}
	kind := KindGroup
	if isChatOf(principal, to) {
		kind = KindDirect
	}
	return PeerKey(session.Agent, ChannelKind(to.Channel), kind, to.ChatID, to.Thread)
}

// isChatOf reports whether an address is the private chat of a principal. That chat has the id of the person.
func isChatOf(principal string, to Target) bool {
	at := strings.LastIndexByte(principal, ':')
	return at > 0 && ChannelKind(principal) == ChannelKind(to.Channel) && principal[at+1:] == to.ChatID
}

// AudienceOf returns who reads the answer of a turn of a principal in a conversation. owner is the owner of the conversation's session; ""
// = the session does not exist yet. Principals that see every session do not need an answer to read another session, so they do not count.
func AudienceOf(principal string, conversation SessionKey, owner string) Audience {
	shared := func(readers string) Audience { return Audience{Conversation: conversation, Readers: readers} }
	to := conversation.Target()
	place := Escaped(strings.TrimSuffix(to.Channel+" "+to.ChatID+", topic "+to.Thread, ", topic "), "")
	switch {
	case conversation.Kind() == KindGroup:
		return shared("everyone in this group (" + strings.TrimSpace(place) + ")")
	case isChatOf(principal, to):
		return Audience{}
	case !to.IsZero():
		return shared("the person in the chat " + place)
	case owner != "" && owner != principal:
		return shared(Escaped(owner, "") + ", who owns this session,")
	default:
		return Audience{}
	}
}
