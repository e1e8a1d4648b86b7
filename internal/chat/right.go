package chat

import "strings"

// Right is the right that a session key alone gives a principal that is restricted to sessions of its own.
type Right int

// The rights.
const (
	// RightFree: the key contains no identity. The session belongs to the principal that creates it.
	RightFree Right = iota
	// RightMine: the key is made of the principal's identity.
	RightMine
	// RightMade: the gateway makes such keys, and they do not name a principal: the run of a job, a sub-turn, a completion without a user. No principal
	// may create the session; once it exists, its owner may use it.
	RightMade
	// RightNone: the key contains the identity of another principal, or is the main session, which is the operator's.
	RightNone
)

// RightOf decides from the key and the principal alone, so that no principal can take a session of another principal by creating it
// first. Principals are names of credentials, `<channel>:<user>`, `<channel>:<account>:<user>` and `hook:<name>`.
func (k SessionKey) RightOf(principal string) Right {
	maker, rest, named := strings.Cut(k.Rest, ":")
	switch {
	case k.Rest == "main":
		return RightNone
	case maker == "hook" && named:
		return mineIf(k.Rest == principal)
	case maker == "api" && named:
		who, _, ofUser := strings.Cut(rest, ":")
		if !ofUser {
			return RightMade
		}
		return mineIf(who == principal)
	case k.OfCronRun(), k.OfTask():
		return RightMade
	}
	if channel := k.Channel(); channel != "" && channel != "web" { // the web channel has no identities of its own
		return mineIf(strings.HasPrefix(principal, channel+":"))
	}
	return RightFree
}

func mineIf(mine bool) Right {
	if mine {
		return RightMine
	}
	return RightNone
}

// Named reports whether a caller has chosen the key: it is neither the main session nor one that the gateway makes for each run of a job, each sub-turn or
// each completion without a user.
func (k SessionKey) Named() bool {
	id, single := strings.CutPrefix(k.Rest, "api:")
	single = single && !strings.Contains(id, ":")
	return k.Rest != "main" && !single && !k.OfCronRun() && !k.OfTask()
}

// UsableBy reports whether a principal that is restricted to its own sessions may use this one. owner is whose it is, if it exists.
func (k SessionKey) UsableBy(principal, owner string, exists bool) bool {
	switch k.RightOf(principal) {
	case RightNone:
		return false
	case RightMade:
		return exists && owner == principal
	default:
		return !exists || owner == principal
	}
}

// PrivateChat reports whether a chat on a channel is the private one of the caller. Person and chat have the same id there.
func (c Caller) PrivateChat(channel, chatID string) bool {
	return chatID != "" && strings.HasPrefix(c.Principal, ChannelKind(channel)+":") && strings.HasSuffix(c.Principal, ":"+chatID)
}

// ForeignChat is the refusal to deliver to a chat on a channel for a principal that is restricted to its own sessions: a credential has no chat there.
func ForeignChat(channel, chatID string) error {
	return Errorf(CodeSessionNotFound, "session not found: this credential has no chat on %s; deliver to a session of its own", Escaped(channel, "")).
		With("key", channel+":"+chatID)
}
