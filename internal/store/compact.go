package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// A compact run is an isolated run of a job that is one row: its row of the ledger has what is otherwise a row of sessions, inbox and runs, and
// the entries of its transcript. The claim makes it so, Start and Finish of its only attempt write the row under its claim, and reads see it as those
// rows. Every other operation first expands it: the adapter writes the rows of their own, and from there the run is a message like every other.
// The claim of its owner holds in both forms. Both forms say the same, so it does not matter to any caller which one a run has.
//
// The number of its message is 1, and the epoch of its session is [CompactEpoch].

// CompactEpoch is the epoch of the session of a compact run. A takeover expands the run, so there is no other.
const CompactEpoch = 1

// CompactRunOf is the run that a session is made for, if the run may be compact; "" = the session is none of such a run. The run may not exist.
func CompactRunOf(key chat.SessionKey) string {
	trigger, job, slot, ok := compactParts(key)
	if !ok {
		return ""
	}
	return trigger + ":" + job + ":" + slot
}

// isCompactRunOf is CompactRunOf(key) == id. Every start and end of a run asks this; it allocates nothing.
func isCompactRunOf(key chat.SessionKey, id string) bool {
	trigger, job, slot, ok := compactParts(key)
	if !ok {
		return false
	}
	first, rest, _ := strings.Cut(id, ":")
	second, third, _ := strings.Cut(rest, ":")
	return first == trigger && second == job && third == slot
}

// compactParts takes the key of a session apart that a run may have for itself.
func compactParts(key chat.SessionKey) (trigger, job, slot string, ok bool) {
	rest, ok := strings.CutPrefix(key.Rest, "cron:")
	if !ok {
		return "", "", "", false
	}
	job, series, _ := strings.Cut(rest, ":")
	trigger, slot, _ = strings.Cut(series, "-")
	return trigger, job, slot, job != "" && mayBeCompact(cron.Trigger(trigger)) && milliseconds(slot)
}

// milliseconds reports whether a text is a moment as ids of runs have it. Moments before 1970 are none of compact runs.
func milliseconds(text string) bool {
	if text == "" || len(text) > 18 || text[0] == '0' {
		return false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

func mayBeCompact(t cron.Trigger) bool { return t == cron.TriggerSchedule || t == cron.TriggerManual }

// CompactRunOfMessage is the run whose first attempt has this message id or dedupe key, if the run may be compact; "" = none.
func CompactRunOfMessage(name string) string {
	id := strings.TrimPrefix(name, "cron:")
	if trigger, _, _, err := cron.ParseRunID(id); err != nil || !mayBeCompact(trigger) {
		return ""
	}
	return id
}

// Compactable reports whether a run with its message can be stored as one row. A run in a session that others share cannot.
func Compactable(r *cron.Run, m *chat.Message) bool {
	return isCompactRunOf(m.Session, r.ID) && m.Session.Agent == r.Agent && m.ID == r.ID && m.Dedupe == "cron:"+r.ID && m.Lane == r.Lane &&
		m.Channel == cron.Channel && m.ExternalID == 0 && m.ParamsHash == "" && len(m.Content.Attachments) == 0 && plain(m.Content.Text)
}

// plain reports whether every engine keeps a text in JSON as it is.
func plain(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// CompactStart reports whether a start may be that of a compact run.
func CompactStart(p *StartParams) bool {
	return p.Cron != nil && p.RunID == p.Cron.RunID && p.Epoch == CompactEpoch && len(p.Seqs) == 1 && p.Seqs[0] == 1 &&
		(p.Cron.Node == "" || p.Cron.Node == p.Node) && p.Cron.Attempt <= 1 && isCompactRunOf(p.Session, p.RunID) && plainEntries(p.Transcript)
}

// CompactFinish reports whether an end may be written into the row of a compact run: the only attempt has succeeded. After every other end
// something is to be done with the message or the session.
func CompactFinish(p *FinishParams) bool {
	if p.Cron == nil || p.RunID != p.Cron.RunID || p.Epoch != CompactEpoch || !isCompactRunOf(p.Session, p.RunID) {
		return false
	}
	if p.State != RunOK || p.Outcome != chat.OutcomeAnswered || p.Cron.State != cron.RunOK || p.Requeue || p.StillRunning || p.Journal {
		return false
	}
	for i := range p.Outgoing {
		if p.Outgoing[i].Kind == KindNotice {
			return false
		}
	}
	return p.Cause == "" && p.Error == "" && p.Usage == p.Cron.Usage && plainEntries(p.Transcript)
}

func plainEntries(list []chat.TranscriptEntry) bool {
	for i := range list {
		if e := &list[i]; !plain(e.Text) || !plain(e.StopReason) || !plain(e.Sender.ID) || !plain(e.Sender.Name) {
			return false
		}
	}
	return true
}

// compactEntry is an entry of the transcript of a compact run. The views of the adapters read these names.
type compactEntry struct {
	Run     string `json:"run"`
	Role    string `json:"role"`
	Content string `json:"content"`
	Sender  string `json:"sender"` // itself JSON, "" = none
	Tokens  int    `json:"tokens"`
	Reason  string `json:"reason"`
	Command bool   `json:"command"`
	Answer  bool   `json:"answer,omitempty"` // written at the end, and not at the start
}

// EncodeCompact makes the elements of a JSON array of entries, without its brackets: the entries of the start, or of the answer.
func EncodeCompact(list []chat.TranscriptEntry, answer bool) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	rows := make([]compactEntry, len(list))
	for i := range list {
		e := &list[i]
		rows[i] = compactEntry{
			Run: e.RunID, Role: e.Role, Content: e.Text, Tokens: e.Tokens, Reason: e.StopReason, Command: e.Command, Answer: answer,
		}
		if e.Sender == (chat.Sender{}) {
			continue
		}
		text, err := json.Marshal(e.Sender)
		if err != nil {
			return "", fmt.Errorf("encoding a sender: %w", err)
		}
		rows[i].Sender = string(text)
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return "", fmt.Errorf("encoding entries of a transcript: %w", err)
	}
	return string(text[1 : len(text)-1]), nil
}

// Numbered gives copies of entries the numbers after a number, and their time.
func Numbered(list []chat.TranscriptEntry, after int64, at time.Time) []chat.TranscriptEntry {
	if len(list) == 0 {
		return nil
	}
	out := make([]chat.TranscriptEntry, len(list))
	for i, e := range list {
		e.Seq, e.At = after+int64(i)+1, at
		out[i] = e
	}
	return out
}
