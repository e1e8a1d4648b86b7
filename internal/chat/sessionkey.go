package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSessionKey is the longest session key in characters.
const MaxSessionKey = 512

// Kinds of a session.
const (
	KindDirect  = "direct"
	KindGroup   = "group"
	KindUnknown = "unknown"
)

var agentID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// SessionKey names one conversation: `agent:<agent>:<rest>`. The zero value is no session. It is comparable and usable as a map key.
type SessionKey struct {
	// Agent is the id of the agent, `[a-z0-9][a-z0-9_-]{0,63}`.
	Agent string
	// Rest is everything behind the agent: `main`, `<channel>:direct|group:<chat>[:topic:<thread>]`,
	// `cron:<job>:<trigger>-<slot>`, `task:<id>`, `api:…`, `hook:<name>` or a name that a client chose.
	Rest string
}

// ErrSessionKey is wrapped by every error of [ParseSessionKey].
var ErrSessionKey = errors.New("invalid session key")

// ValidAgentID reports whether s can be the id of an agent.
func ValidAgentID(s string) bool { return agentID.MatchString(s) }

// ParseSessionKey reads a key as it stands on the wire. A key without the prefix `agent:` belongs to defaultAgent. The
// result of [SessionKey.String] parses back to the same value.
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

// String is the key as it stands on the wire and in the tables.
func (k SessionKey) String() string {
	if k == (SessionKey{}) {
		return ""
	}
	return "agent:" + k.Agent + ":" + k.Rest
}

// IsZero reports whether k names no session.
func (k SessionKey) IsZero() bool { return k == SessionKey{} }

// MainKey is the key of an agent's main session.
func MainKey(agent string) SessionKey { return SessionKey{Agent: agent, Rest: "main"} }

// PeerKey is the key of a conversation on a channel. Thread may be empty.
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

// OfCronRun reports whether the session is one that runs of a job have for themselves, `cron:<job>:<run>`. A session that a job shares with others is none.
func (k SessionKey) OfCronRun() bool {
	rest, ok := strings.CutPrefix(k.Rest, "cron:")
	return ok && strings.Contains(rest, ":")
}

// taskPrefix begins the keys of sub-turns.
const taskPrefix = "task:"

// TaskKey is the key of the session that a sub-turn of an agent has for itself.
func TaskKey(agent, id string) SessionKey { return SessionKey{Agent: agent, Rest: taskPrefix + id} }

// OfTask reports whether the session is that of a sub-turn, `task:<id>`.
func (k SessionKey) OfTask() bool { return strings.HasPrefix(k.Rest, taskPrefix) }

// compactionPrefix begins the keys of compactions.
const compactionPrefix = "cron:compact:"

// CompactionKey is the key of the session in which the compactions of a transcript run.
func CompactionKey(agent, transcript string) SessionKey {
	return SessionKey{Agent: agent, Rest: compactionPrefix + transcript}
}

// likeUUID has the shape of the names that the gateway gives such sessions.
var likeUUID = regexp.MustCompile(`^.{8}-.{4}-.{4}-.{4}-.{12}$`)

// OfSideTurns reports whether the session is one that the gateway makes for turns beside a conversation: that of a sub-turn or of the compactions of a
// transcript. They have a UUID behind the prefix; a name that a client chose and that begins in the same way is none.
func (k SessionKey) OfSideTurns() bool {
	for _, prefix := range []string{taskPrefix, compactionPrefix} {
		if id, ok := strings.CutPrefix(k.Rest, prefix); ok && likeUUID.MatchString(id) {
			return true
		}
	}
	return false
}

// Channel is the channel that made the key, or "" where the key names none.
func (k SessionKey) Channel() string {
	if k.Kind() == KindUnknown || k.Rest == "main" {
		return ""
	}
	name, _, _ := strings.Cut(k.Rest, ":")
	return name
}

// Unprintable reports control and bidirectional formatting characters, which are refused in names and keys because
// they make a list or a log line look like something else than it contains.
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

// Escaped shows what [Unprintable] reports as \uXXXX, for places that show text of another person: labels, lists, sentences. Characters of keep
// stay as they are.
func Escaped(s, keep string) string {
	return escaped(s, func(r rune) bool { return Unprintable(r) && !strings.ContainsRune(keep, r) })
}

// AllVisible escapes what [Escaped] does, and each character that takes no place or looks like a blank: the category Cf (zero-width, tags), variation selectors, fillers.
// Scripts and emoji need some of them, so it is for questions alone, where every character counts.
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

// TargetFor is [SessionKey.Target] on the account through which a principal of the channel speaks: keys do not name the account, principals do.
func (k SessionKey) TargetFor(principal string) Target {
	to := k.Target()
	if at := strings.LastIndexByte(principal, ':'); at > 0 && !to.IsZero() && ChannelKind(principal) == to.Channel {
		to.Channel = principal[:at]
	}
	return to
}

// Target is the place on a channel that the key names. It is zero when the key names none, and for the web, where the transcript is the delivery.
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
