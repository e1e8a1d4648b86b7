package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// What the deletion of a session removes. $1 is the key of a session.

const (
	// BelowSQL lists the sessions that a deletion removes with a session: those of its sub-turns, and those in which its transcripts were compacted. The
	// sessions below these follow with a query for each, see [Deleting].
	BelowSQL = `
		SELECT i.session_key FROM inbox m JOIN inbox i ON i.parent = m.message_id WHERE m.session_key = $1 AND i.session_key LIKE 'agent:%:task:%'
		UNION SELECT i.session_key FROM inbox m JOIN inbox i ON i.root = m.message_id WHERE m.session_key = $1 AND i.session_key LIKE 'agent:%:task:%'
		UNION SELECT c.key FROM sessions s JOIN transcript t ON t.session_key = s.key
			JOIN sessions c ON c.key = 'agent:' || s.agent || ':cron:compact:' || t.session_id WHERE s.key = $1`

	// FilesOfSessionSQL reads the lists of files that the messages of a session name, each a JSON array.
	FilesOfSessionSQL = `
		SELECT body FROM inbox WHERE session_key = $1 AND body LIKE '%"attachments":%'
		UNION ALL SELECT '{"attachments":[' || file || ']}' FROM outbox WHERE ` + outgoingOf + ` AND file <> ''`

	// outgoingOf selects what is sent for a session, and what is sent to it.
	outgoingOf = `(session_key = $1 AND session_key <> '' OR chat_id = $1 AND channel = 'web')`
)

// ClearSQL are the statements that empty what a deletion leaves of a session. The messages keep their ids and hashes, so that none is accepted a second
// time. The runs keep their numbers and usage.
func ClearSQL() []string {
	return []string{
		`UPDATE inbox SET body = '{}', sender = '' WHERE session_key = $1`,
		`DELETE FROM turn_rounds WHERE run_id IN (SELECT id FROM runs WHERE session_key = $1)`,
		`UPDATE runs SET error = '', detail = '' WHERE session_key = $1`,
		`DELETE FROM tool_questions WHERE session_key = $1`,
		`UPDATE outbox SET payload = '', text_many = '', choice = '', file = '', last_error = '' WHERE ` + outgoingOf,
	}
}

// ClearSummariesSQL empties the summaries of the runs of jobs in a session, and returns its parameter. It finds them by the id of the run that has the
// session for itself, else by the index of sessions that runs share.
func ClearSummariesSQL(key chat.SessionKey) (sql, arg string) {
	const emptied = `UPDATE cron_run_logs SET summary = '' WHERE summary <> '' AND `
	switch run := runOfSession(key); {
	case run != "":
		return emptied + `id = $1`, run
	case strings.Contains(strings.ToLower(key.String()), ":cron:"): // in SQLite LIKE ignores the case
		return emptied + `session_key = $1`, key.String()
	default:
		return emptied + `session_key = $1 AND session_key NOT LIKE '%:cron:%'`, key.String()
	}
}

// runOfSession is the run that has a session for itself, by their names; "" = the session is none of such a run. The run may not exist.
func runOfSession(key chat.SessionKey) string {
	rest, ok := strings.CutPrefix(key.Rest, "cron:")
	job, series, _ := strings.Cut(rest, ":")
	trigger, slot, _ := strings.Cut(series, "-")
	id := trigger + ":" + job + ":" + slot
	if _, _, _, err := cron.ParseRunID(id); !ok || err != nil || trigger != string(cron.TriggerSchedule) && trigger != string(cron.TriggerManual) {
		return ""
	}
	return id
}

// EndOutgoingSQL ends what waits to be sent for a session.
const EndOutgoingSQL = `UPDATE outbox SET state = '` + OutDeleted + `', done_at = {now} WHERE done_at IS NULL AND ` + outgoingOf

// DropSQL are the statements that remove the messages and runs of a sub-turn, after [ClearSQL]: no list shows it any more.
func DropSQL() []string {
	return []string{`DELETE FROM inbox WHERE session_key = $1`, `DELETE FROM runs WHERE session_key = $1`}
}

// Deleting returns the keys of all sessions that the deletion of a session removes, the session first. below runs [BelowSQL].
func Deleting(key string, below func(key string) ([]string, error)) ([]string, error) {
	keys := []string{key}
	for i := 0; i < len(keys); i++ {
		list, err := below(keys[i])
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}

// FilesOf are the files that a row of [FilesOfSessionSQL] names.
func FilesOf(row string) ([]chat.Attachment, error) {
	var body struct {
		Attachments []chat.Attachment `json:"attachments"`
	}
	if err := json.Unmarshal([]byte(row), &body); err != nil {
		return nil, fmt.Errorf("reading the files of a message: %w", err)
	}
	return body.Attachments, nil
}
