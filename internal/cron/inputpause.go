package cron

import (
	"encoding/json"
	"strings"
	"time"

	"laneway/internal/chat"
)

const maxNoteRunes = 500

// setPaused reads the pause of an imported job, as views show it: note (1 to 500 characters), by, atMs (now), untilMs (null = until the job is resumed),
// enabled (the state of the job after the pause). A pause whose end has passed is ignored.
func setPaused(b Border, j *Job, raw json.RawMessage, _ Members) error {
	if strings.TrimSpace(string(raw)) == "null" {
		return nil
	}
	var in struct {
		Note    string `json:"note"`
		By      string `json:"by"`
		AtMs    int64  `json:"atMs"`
		UntilMs *int64 `json:"untilMs"`
		Enabled *bool  `json:"enabled"`
	}
	if err := readInto("paused", raw, &in); err != nil {
		return err
	}
	for name, text := range map[string]string{"paused.note": in.Note, "paused.by": in.By} {
		if text == "" {
			continue
		}
		if err := chat.CheckText(name, text, 4*maxNoteRunes); err != nil {
			return err
		}
	}
	switch {
	case strings.TrimSpace(in.Note) == "" || len([]rune(in.Note)) > maxNoteRunes:
		return refuse("paused.note must have 1 to 500 characters, not only blanks")
	case in.AtMs < 0 || (in.UntilMs != nil && *in.UntilMs < 1):
		return refuse("paused.atMs and paused.untilMs must be milliseconds since 1970")
	}
	p := &Pause{Note: in.Note, By: in.By, At: b.Now}
	if at := time.UnixMilli(in.AtMs).UTC(); in.AtMs > 0 && at.Before(b.Now) {
		p.At = at
	}
	if in.UntilMs != nil {
		p.Until = time.UnixMilli(*in.UntilMs).UTC()
	}
	if in.Enabled != nil {
		j.Enabled = *in.Enabled
	}
	if p.Until.IsZero() || p.Until.After(b.Now) {
		j.Pause = p
	}
	return nil
}
