package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSessionKey is the maximum length of a session key in characters.
const MaxSessionKey = 512

// Kinds of a session.
const (
	KindDirect  = "direct"
	KindGroup   = "group"
	KindUnknown = "unknown"
)

var agentID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// SessionKey names one conversation: `agent:<agent>:<rest>`. The zero value names no session. It is
// comparable and usable as a map key.
type SessionKey struct {
	// Agent is the id of the agent, `[a-z0-9][a-z0-9_-]{0,63}`.
	Agent string
	// Rest is everything after the agent: `main`, `<channel>:direct|group:<chat>[:topic:<thread>]`,
	// `cron:<job>:<trigger>-<slot>`, `task:<id>`, `api:…`, `hook:<name>` or a name that a client
	// chose.
	Rest string
}

// ErrSessionKey is wrapped by every error of [ParseSessionKey].
var ErrSessionKey = errors.New("invalid session key")

// ValidAgentID reports whether s can be the id of an agent.
func ValidAgentID(s string) bool { return agentID.MatchString(s) }

// ParseSessionKey parses a key of the protocol. A key without the prefix `agent:` belongs to
// defaultAgent. The result of [SessionKey.String] parses back to the same value.
func ParseSessionKey(s, defaultAgent string) (SessionKey, error) {
	if err := checkKeyText(s); err != nil {
		return SessionKey{}, err
	}
	rest, prefixed := strings.CutPrefix(s, "agent:")
	key := SessionKey{Agent: defaultAgent, Rest: s}
	if prefixed {
		id, tail, ok := strings.Cut(rest, ":")
		if !ok || tail == "" {
			return SessionKey{}, fmt.Errorf("%w: want agent:<agent>:<name>", ErrSessionKey)
		}
		key = SessionKey{Agent: id, Rest: tail}
	}
	if !ValidAgentID(key.Agent) {
		return SessionKey{}, fmt.Errorf("%w: the agent id must match %s", ErrSessionKey, agentID)
	}
	if utf8.RuneCountInString(key.String()) > MaxSessionKey {
		return SessionKey{}, fmt.Errorf("%w: longer than %d characters", ErrSessionKey, MaxSessionKey)
	}
	return key, nil
}

func checkKeyText(s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return fmt.Errorf("%w: it is empty", ErrSessionKey)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrSessionKey)
	case Name(s) != s:
		return fmt.Errorf("%w: control, bidirectional and invisible characters are not allowed", ErrSessionKey)
	}
	return nil
}

// String returns the form of the key on the wire and in the tables.
func (k SessionKey) String() string {
	if k == (SessionKey{}) {
		return ""
	}
	return "agent:" + k.Agent + ":" + k.Rest
}

// IsZero reports whether k names no session.
func (k SessionKey) IsZero() bool { return k == SessionKey{} }

// MainKey returns the key of an agent's main session.
func MainKey(agent string) SessionKey { return SessionKey{Agent: agent, Rest: "main"} }

// PeerKey returns the key of a conversation on a channel. Thread may be empty.
func PeerKey(agent, channel, kind, chatID, thread string) SessionKey {
	rest := channel + ":" + kind + ":" + chatID
	if thread != "" {
		rest += ":topic:" + thread
	}
	return SessionKey{Agent: agent, Rest: rest}
}

// Kind distinguishes direct conversations, in which one person waits for one answer, from groups.
// Keys without a kind are [KindUnknown]; the main session is direct.
func (k SessionKey) Kind() string {
	parts := strings.SplitN(k.Rest, ":", 3)
	switch {
	case k.Rest == "main":
		return KindDirect
	case len(parts) == 3 && (parts[1] == KindDirect || parts[1] == KindGroup):
		return parts[1]
	default:
		return KindUnknown
	}
}

// OfCronRun reports whether the session is for runs of a job only, `cron:<job>:<run>`. It is false
// for a session that a job shares.
func (k SessionKey) OfCronRun() bool {
	rest, ok := strings.CutPrefix(k.Rest, "cron:")
	return ok && strings.Contains(rest, ":")
}

// taskPrefix is the prefix of the keys of sub-turns.
const taskPrefix = "task:"

// TaskKey returns the key of the session for a sub-turn of an agent.
func TaskKey(agent, id string) SessionKey { return SessionKey{Agent: agent, Rest: taskPrefix + id} }

// OfTask reports whether the session belongs to a sub-turn, `task:<id>`.
func (k SessionKey) OfTask() bool { return strings.HasPrefix(k.Rest, taskPrefix) }

// compactionPrefix is the prefix of the keys of compactions.
const compactionPrefix = "cron:compact:"

// CompactionKey returns the key of the session in which the compactions of a transcript run.
func CompactionKey(agent, transcript string) SessionKey {
	return SessionKey{Agent: agent, Rest: compactionPrefix + transcript}
}

// passingPrefix begins the names of sessions that are deleted after their end. The name of a
// conversation of a credential has one more part, which follows a colon.
const passingPrefix = "api:passing-"

// PassingName returns the name of a session that is deleted after the end of its messages.
func PassingName(id string) string { return passingPrefix + id }

// Passing reports whether the session is deleted after the end of its messages.
func (k SessionKey) Passing() bool {
	name, ok := strings.CutPrefix(k.Rest, passingPrefix)
	return ok && !strings.Contains(name, ":")
}

// Channel returns the channel that made the key, or "" when the key names no channel.
func (k SessionKey) Channel() string {
	if k.Kind() == KindUnknown || k.Rest == "main" {
		return ""
	}
	name, _, _ := strings.Cut(k.Rest, ":")
	return name
}

// Unprintable reports control and bidirectional formatting characters. They are refused in names
// and keys because they make a list or a log line look different from its content.
func Unprintable(r rune) bool {
	switch {
	case unicode.IsControl(r):
		return true
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x200E, r == 0x200F, r == 0x061C:
		return true
	case r == 0x2028, r == 0x2029, r == 0xFEFF:
		return true
	default:
		return false
	}
}

// Escaped writes the characters that [Unprintable] reports as \uXXXX, for places that show text of
// another person: labels, lists, sentences. Characters in keep are not changed.
func Escaped(s, keep string) string {
	return escaped(s, func(r rune) bool { return Unprintable(r) && !strings.ContainsRune(keep, r) })
}

// ShellWord quotes a text for a shell if it needs quotes, so that a command with it can be pasted.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if s != "" && strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// fillers have no ink and are letters or symbols for Unicode.
const fillers = "\u034f\u115f\u1160\u2800\u3164\uffa0"

// hidden reports characters that have no width or look like a space: the category Cf (zero-width,
// tags), variation selectors, fillers.
func hidden(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector) || strings.ContainsRune(fillers, r)
}

// Visible is a text without the characters that cannot be seen, for comparisons.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if Unprintable(r) || hidden(r) {
			return -1
		}
		return r
	}, s)
}

// Name makes the name of a person, a session, a job, a token or an agent safe to show: names that
// look alike should be alike. It removes what [Unprintable] reports, fillers, and characters
// without width, except within a grapheme that needs them: ZWJ and variation selectors in emoji,
// ZWNJ and ZWJ between letters, and the tags of a flag.
func Name(s string) string {
	in := []rune(s)
	out := make([]rune, 0, len(in))
	for i, r := range in {
		var next rune
		if i+1 < len(in) {
			next = in[i+1]
		}
		if !Unprintable(r) && !strings.ContainsRune(fillers, r) && (!hidden(r) || joins(out, r, next)) {
			out = append(out, r)
		}
	}
	return string(out)
}

// joins reports whether a hidden character is a part of the grapheme between before and next.
func joins(before []rune, r, next rune) bool {
	if len(before) == 0 {
		return false
	}
	last := before[len(before)-1]
	const zwnj, zwj, flag, emojiForm = 0x200C, 0x200D, 0x1F3F4, 0xFE0F
	switch {
	case r == zwj && emoji(next):
		return emoji(last) || last == emojiForm
	case r == zwj, r == zwnj:
		return unicode.In(last, joining()...) && unicode.In(next, joining()...)
	case isTag(r):
		tags := 0
		for tags < len(before) && isTag(before[len(before)-1-tags]) {
			tags++
		}
		return tags < longestFlag && tags < len(before) && before[len(before)-1-tags] == flag
	case unicode.Is(unicode.Variation_Selector, r):
		return emoji(last) || strings.ContainsRune("#*0123456789", last) || unicode.In(last, unicode.Han, unicode.Mongolian)
	}
	return unicode.In(r, unicode.Arabic, unicode.Syriac) // signs that span the digits after them
}

// longestFlag is how many tags the flag of a region has, with the one that ends it.
const longestFlag = 7

func isTag(r rune) bool { return r >= 0xE0020 && r <= 0xE007F }

// joining are the scripts whose letters have other forms next to a joiner.
func joining() []*unicode.RangeTable {
	return []*unicode.RangeTable{
		unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
		unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Tibetan,
	}
}

// emoji reports characters that may be a part of an emoji.
func emoji(r rune) bool {
	return unicode.Is(unicode.So, r) || r >= 0x1F3FB && r <= 0x1F3FF || r >= 0x2190 && r <= 0x2BFF || r == 0x203C || r == 0x2049
}

// AllVisible escapes what [Escaped] does, and each character that is hidden. Scripts and emoji need
// some of them, so use it only for questions, where every character counts.
func AllVisible(s string) string {
	return escaped(s, func(r rune) bool {
		return Unprintable(r) || hidden(r)
	})
}

func escaped(s string, hidden func(rune) bool) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// TargetFor is [SessionKey.Target] on the account that a principal of the channel uses: principals
// name the account, keys do not.
func (k SessionKey) TargetFor(principal string) Target {
	to := k.Target()
	if at := strings.LastIndexByte(principal, ':'); at > 0 && !to.IsZero() && ChannelKind(principal) == to.Channel {
		to.Channel = principal[:at]
	}
	return to
}

// Target returns the address on a channel that the key names. It is zero when the key names no
// channel, and for the web channel, whose clients read the transcript.
func (k SessionKey) Target() Target {
	channel := k.Channel()
	if channel == "" || channel == "web" {
		return Target{}
	}
	_, rest, _ := strings.Cut(k.Rest, ":")
	_, place, _ := strings.Cut(rest, ":")
	id, thread, _ := strings.Cut(place, ":topic:")
	return Target{Channel: channel, ChatID: id, Thread: thread}
}

// Audience is who can read the answer of a turn: only its principal, or every reader of one
// conversation. The zero value means only the principal.
//
// A turn with several readers shows only data of their conversation, unless the principal allows
// more.
type Audience struct {
	// Conversation is the conversation that the readers share; zero = the answer is private.
	Conversation SessionKey `json:"conversation,omitzero"`
	// Readers names them, for use as the subject of a sentence.
	Readers string `json:"readers,omitempty"`
}

// Shared reports whether anyone except the principal can read the answer.
func (a Audience) Shared() bool { return !a.Conversation.IsZero() }

// ConversationOf returns the conversation in which the answer of a turn is read: its session, or
// the conversation at the address to which the answer goes. A webhook has no conversation. The
// address of a chat does not show whether it is a group, so every chat except the principal's own
// counts as one.
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

// isChatOf reports whether an address is the private chat of a principal. That chat has the id of
// the person. A principal with the id of a group, which is negative, is several persons.
func isChatOf(principal string, to Target) bool {
	at := strings.LastIndexByte(principal, ':')
	return at > 0 && !strings.HasPrefix(to.ChatID, "-") && ChannelKind(principal) == ChannelKind(to.Channel) && principal[at+1:] == to.ChatID
}

// AudienceOf returns who reads the answer of a turn of a principal in a conversation. owner is the
// owner of the conversation's session; "" = the session does not exist yet. Principals that see
// every session do not need an answer to read another session, so they do not count.
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

// Right is what a session key alone permits to a principal that is restricted to its own sessions.
type Right int

// The rights.
const (
	// RightFree: the key contains no identity. The session belongs to the principal that creates
	// it.
	RightFree Right = iota
	// RightMine: the key contains the principal's identity.
	RightMine
	// RightMade: the gateway generates such keys, and they do not name a principal: a job or its
	// run, a sub-turn, a completion without a user. No principal may create the session. Once it
	// exists, its owner may use it.
	RightMade
	// RightNone: the key contains the identity of another principal, or names the main session,
	// which belongs to the operator.
	RightNone
)

// ToolsPrefix begins the key of the session that receives what the tools of a credential send
// outside of any turn, before its name.
const ToolsPrefix = "mcp-"

// credentialName is the form of the names of credentials.
var credentialName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// RightOf decides from the key and the principal alone, so that a principal cannot take over a
// session of another principal by creating it first. Principals are names of credentials,
// `<channel>:<user>`, `<channel>:<account>:<user>` and `hook:<name>`.
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

// Named reports whether a caller chose the key: it is neither the main session nor a key that the
// gateway generates for a run of a job, a sub-turn or a completion without a user.
func (k SessionKey) Named() bool {
	id, single := strings.CutPrefix(k.Rest, "api:")
	single = single && !strings.Contains(id, ":")
	return k.Rest != "main" && !single && !k.OfCronRun() && !k.OfTask()
}

// UsableBy reports whether a principal that is restricted to its own sessions may use this one.
// owner is the owner of the session, if it exists.
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

// PrivateChat reports whether a chat on a channel is the private chat of the caller. Person and
// chat have the same id there.
func (c Caller) PrivateChat(channel, chatID string) bool {
	return chatID != "" && strings.HasPrefix(c.Principal, ChannelKind(channel)+":") && strings.HasSuffix(c.Principal, ":"+chatID)
}

// ForeignChat returns the error for a delivery to a chat on a channel by a principal that is
// restricted to its own sessions: a credential has no chat there.
func ForeignChat(channel, chatID string) error {
	return Errorf(CodeSessionNotFound, "session not found: this credential has no chat on %s; deliver to a session of its own", Escaped(channel, "")).
		With("key", channel+":"+chatID)
}
