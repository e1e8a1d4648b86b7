package chat

import (
	"regexp"
	"strings"
)

// Right is what a session key alone permits to a principal that is restricted to its own sessions.
type Right int

// The rights.
const (
	// RightFree: the key contains no identity. The session belongs to the principal that creates it.
	RightFree Right = iota
	// RightMine: the key contains the principal's identity.
	RightMine
	// RightMade: the gateway generates such keys, and they do not name a principal: a job or its run, a sub-turn, a completion without a
	// user. No principal may create the session. Once it exists, its owner may use it.
	RightMade
	// RightNone: the key contains the identity of another principal, or names the main session, which belongs to the operator.
	RightNone
)

// ToolsPrefix begins the key of the session that receives what the tools of a credential send outside of any turn, before its name.
const ToolsPrefix = "mcp-"

// credentialName is the form of the names of credentials.
var credentialName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// RightOf decides from the key and the principal alone, so that a principal cannot take over a session of another principal by creating it
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
	case maker == "cron" && named, k.OfTask():
		return RightMade
	}
	if name, ofTools := strings.CutPrefix(k.Rest, ToolsPrefix); ofTools && credentialName.MatchString(name) {
		return mineIf(name == principal)
	}
	if channel := k.Channel(); channel != "" && channel != "web" { // the web channel has no identities
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

// Named reports whether a caller chose the key: it is neither the main session nor a key that the gateway generates for a run of a job, a
// sub-turn or a completion without a user.
func (k SessionKey) Named() bool {
	id, single := strings.CutPrefix(k.Rest, "api:")
	single = single && !strings.Contains(id, ":")
	return k.Rest != "main" && !single && !k.OfCronRun() && !k.OfTask()
}

// UsableBy reports whether a principal that is restricted to its own sessions may use this one. owner is the owner of the session, if it
// exists.
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

// PrivateChat reports whether a chat on a channel is the private chat of the caller. Person and chat have the same id there.
func (c Caller) PrivateChat(channel, chatID string) bool {
	return chatID != "" && strings.HasPrefix(c.Principal, ChannelKind(channel)+":") && strings.HasSuffix(c.Principal, ":"+chatID)
}

// ForeignChat returns the error for a delivery to a chat on a channel by a principal that is restricted to its own sessions: a credential
// has no chat there.
func ForeignChat(channel, chatID string) error {
	return Errorf(CodeSessionNotFound, "session not found: this credential has no chat on %s; deliver to a session of its own", Escaped(channel, "")).
		With("key", channel+":"+chatID)
}
