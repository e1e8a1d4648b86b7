package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// RunOfSession is the run that a session was made for, by its key; "" when the session was not made for a single run. The run may not exist.
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

// Deleting returns the keys of all sessions that the deletion of a session removes, the session first. below lists the sessions that belong to a session.
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

// FilesOf returns the attachments that a JSON object names.
func FilesOf(row string) ([]chat.Attachment, error) {
	var body struct {
		Attachments []chat.Attachment `json:"attachments"`
	}
	if err := json.Unmarshal([]byte(row), &body); err != nil {
		return nil, fmt.Errorf("reading the files of a message: %w", err)
	}
	return body.Attachments, nil
}
