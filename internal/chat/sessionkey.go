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

// SessionKey names one conversation: `agent:<agent>:<rest>`. The zero value names no session. It is comparable and usable as a map key.
type SessionKey struct {
	// Agent is the id of the agent, `[a-z0-9][a-z0-9_-]{0,63}`.
	Agent string
	// Rest is everything after the agent: `main`, `<channel>:direct|group:<chat>[:topic:<thread>]`, `cron:<job>:<trigger>-<slot>`,
	// `task:<id>`, `api:…`, `hook:<name>` or a name that a client chose.
	Rest string
}

// ErrSessionKey is wrapped by every error of [ParseSessionKey].
var ErrSessionKey = errors.New("invalid session key")

// ValidAgentID reports whether s can be the id of an agent.
func ValidAgentID(s string) bool { return agentID.MatchString(s) }

// ParseSessionKey parses a key of the protocol. A key without the prefix `agent:` belongs to defaultAgent. The result of
// [SessionKey.String] parses back to the same value.
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
	case strings.ContainsFunc(s, Unprintable):
		return fmt.Errorf("%w: control and bidirectional characters are not allowed", ErrSessionKey)
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

// Kind distinguishes direct conversations, in which one person waits for one answer, from groups. Keys without a kind are
// [KindUnknown]; the main session is direct.
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

// OfCronRun reports whether the session is for runs of a job only, `cron:<job>:<run>`. It is false for a session that a job shares.
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

// likeUUID matches the names that the gateway generates for such sessions.
var likeUUID = regexp.MustCompile(`^.{8}-.{4}-.{4}-.{4}-.{12}$`)

// OfSideTurns reports whether the gateway made the session for turns beside a conversation: for a sub-turn or for the compactions of a
// transcript. These keys have a UUID after the prefix, which distinguishes them from names with the same prefix that a client chose.
func (k SessionKey) OfSideTurns() bool {
	for _, prefix := range []string{taskPrefix, compactionPrefix} {
		if id, ok := strings.CutPrefix(k.Rest, prefix); ok && likeUUID.MatchString(id) {
			return true
		}
	}
	return false
}

// Channel returns the channel that made the key, or "" when the key names no channel.
func (k SessionKey) Channel() string {
	if k.Kind() == KindUnknown || k.Rest == "main" {
		return ""
	}
	name, _, _ := strings.Cut(k.Rest, ":")
	return name
}

// Unprintable reports control and bidirectional formatting characters. They are refused in names and keys because they make a list or a log
// line look different from its content.
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

// Escaped writes the characters that [Unprintable] reports as \uXXXX, for places that show text of another person: labels, lists,
// sentences. Characters in keep are not changed.
func Escaped(s, keep string) string {
	return escaped(s, func(r rune) bool { return Unprintable(r) && !strings.ContainsRune(keep, r) })
}

// AllVisible escapes what [Escaped] does, and each character that has no width or looks like a space: the category Cf (zero-width, tags),
// variation selectors, fillers. Scripts and emoji need some of them, so use it only for questions, where every character counts.
func AllVisible(s string) string {
	return escaped(s, func(r rune) bool {
		return Unprintable(r) || unicode.In(r, unicode.Cf, unicode.Variation_Selector) || strings.ContainsRune("\u034f\u115f\u1160\u2800\u3164\uffa0", r)
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

// TargetFor is [SessionKey.Target] on the account that a principal of the channel uses: principals name the account, keys do not.
func (k SessionKey) TargetFor(principal string) Target {
	to := k.Target()
	if at := strings.LastIndexByte(principal, ':'); at > 0 && !to.IsZero() && ChannelKind(principal) == to.Channel {
		to.Channel = principal[:at]
	}
	return to
}

// Target returns the address on a channel that the key names. It is zero when the key names no channel, and for the web channel, whose
// clients read the transcript.
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
