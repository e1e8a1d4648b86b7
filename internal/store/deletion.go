package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// RunOfSession is the run that has a session for itself, by their names; "" = the session is none of such a run. The run may not exist.
func RunOfSession(key chat.SessionKey) string {
	rest, ok := strings.CutPrefix(key.Rest, "cron:")
	job, series, _ := strings.Cut(rest, ":")
	trigger, slot, _ := strings.Cut(series, "-")
	id := trigger + ":" + job + ":" + slot
	if _, _, _, err := cron.ParseRunID(id); !ok || err != nil || trigger != string(cron.TriggerSchedule) && trigger != string(cron.TriggerManual) {
		return ""
	}
	return id
}

// Deleting returns the keys of all sessions that the deletion of a session removes, the session first. below lists those that belong to one of them.
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

// FilesOf are the files that a JSON object names as its attachments.
func FilesOf(row string) ([]chat.Attachment, error) {
	var body struct {
		Attachments []chat.Attachment `json:"attachments"`
	}
	if err := json.Unmarshal([]byte(row), &body); err != nil {
		return nil, fmt.Errorf("reading the files of a message: %w", err)
	}
	return body.Attachments, nil
}
