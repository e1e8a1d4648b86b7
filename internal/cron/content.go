package cron

import (
	"encoding/json"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// turnOptions are the payload members that an agent turn uses by name; all others are passed to the runner unchanged.
type turnOptions struct {
	Model    string `json:"model"`
	Thinking string `json:"thinking"`
}

// content is the content of the message of a run.
func (j Job) content(r PlannedRun) chat.Content {
	c := chat.Content{
		Text: j.Payload.Text, Sender: chat.Sender{ID: "cron:" + j.ID, Name: j.Name}, System: j.Payload.Kind == PayloadSystemEvent,
		Options: chat.Options{NoMerge: true, AtMostOnce: j.AtMostOnce, Mode: chat.ModeQueue, TimeoutMs: j.Timeout.Milliseconds()},
	}
	if j.Timeout <= 0 {
		c.Options.TimeoutMs = -1
	}
	if c.Text == "" {
		c.Text = string(j.Payload.Kind)
	}
	if r.Trigger.Kind() == TriggerBackfill || (r.Trigger.Planned() && r.Late >= lateNote) {
		c.Text += "\n\n(planned for " + j.localTime(r.Slot) + ")"
	}
	if j.Payload.Kind == PayloadAgentTurn && len(j.Payload.Options) > 0 {
		var known turnOptions
		var all map[string]any
		if json.Unmarshal(j.Payload.Options, &known) == nil && json.Unmarshal(j.Payload.Options, &all) == nil {
			c.Options.Model, c.Options.Thinking = known.Model, known.Thinking
			delete(all, "model")
			delete(all, "thinking")
			if len(all) > 0 {
				c.Options.Params = all
			}
		}
	}
	return c
}

// localTime formats a moment in the job's zone.
func (j Job) localTime(t time.Time) string {
	loc, err := schedule.LoadZone(j.Schedule.TZ)
	if err != nil {
		loc = time.UTC
	}
	return t.In(loc).Format("2006-01-02 15:04 -07:00")
}

func millisText(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
